"""Access key and secret. The secret is never logged; prefer loading it from a 0600 file."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Final

from broker_core.errors import InvalidConfig

SECRET_SIZE_MIN: Final = 6
KEY_SIZE_MAX: Final = 256
PRIVATE_FILE_SIZE_MAX: Final = 8 << 20

FileStamp = tuple[int, int, int, int]

_READABLE_BY_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Credentials:
    """Signs the requests of a client. Neither `repr` nor an error shows the secret."""

    __slots__ = ("access_key", "secret", "security_token")

    def __init__(self, access_key: str, secret_key: str, security_token: str = "") -> None:
        if not 1 <= len(access_key) <= KEY_SIZE_MAX or not access_key.isprintable():
            accepted = f"1 to {KEY_SIZE_MAX} printable characters"
            raise InvalidConfig("access_key", access_key, accepted)
        if not SECRET_SIZE_MIN <= len(secret_key) <= KEY_SIZE_MAX:
            accepted = f"{SECRET_SIZE_MIN} to {KEY_SIZE_MAX} characters"
            raise InvalidConfig("secret_key", "*****", accepted)
        self.access_key = access_key
        self.secret = secret_key.encode()
        self.security_token = security_token

    def __repr__(self) -> str:
        return f"<credentials of {self.access_key}>"

    def __reduce__(self) -> str:
        raise TypeError("credentials are not pickled: pass the file that has the secret")


def read_private_file(path: str, option: str, size_max: int = PRIVATE_FILE_SIZE_MAX) -> bytes:
    """The content of a file that only its owner, who must be us or root, can read.

    Raises `InvalidConfig` that names `option`; the content is never part of it.
    """
    try:
        file_path = Path(path)
        # Checked before opening, because opening a pipe would block.
        found = file_path.stat()
        _check_private(found, path, option)
        with file_path.open("rb") as file:
            data = file.read(size_max + 1)
        is_same = _is_same(found, file_path.stat())
    except InvalidConfig:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidConfig(option, path, f"the file cannot be read: {reason}") from None
    if not is_same:
        raise InvalidConfig(option, path, "a file that does not change while it is read")
    if len(data) > size_max:
        raise InvalidConfig(option, path, f"a file of at most {size_max} bytes")
    return data


def read_secret_file(path: str, option: str) -> str:
    """The first line of a private file."""
    data = read_private_file(path, option, 64 << 10)
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines or not lines[0].strip():
        raise InvalidConfig(option, path, "a file whose first line is the secret")
    return lines[0].strip()


def file_stamp(path: str) -> FileStamp | None:
    """Changes when the file changes; None while it does not exist."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)


def _is_same(before: Any, after: Any) -> bool:
    return (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def _check_private(found: Any, path: str, option: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InvalidConfig(option, path, "a regular file")
    if found.st_mode & _READABLE_BY_OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise InvalidConfig(
            option, path, f"a file that only its owner can use: its mode is {mode:04o}, chmod 600"
        )
    if found.st_uid not in (0, os.geteuid()):
        raise InvalidConfig(option, path, "a file that is owned by the user of this process")
