"""Small metadata tables (`config/*.json`) in Apache's shapes, replaced atomically.

Reads what RocketMQ writes: bare integer keys are quoted first, and a missing, empty or unparsable
file falls back to its `.bak`. Our own files carry a `checksum` field, which RocketMQ ignores, so
that a flipped digit is detected; remove that field when you edit a table by hand.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from typing import Any

from broker_core.codec.json.fields import is_deeper
from broker_core.errors import CorruptStore
from broker_core.storage.files.atomic_file import read_file, replace_file_keeping_backup
from broker_core.storage.files.file_system import FileSystem

TABLE_SIZE_MAX = 256 << 20
DEPTH_MAX = 32
CHECKSUM_FIELD = "checksum"

_CHECKSUM = re.compile(r"crc32:.{8}", re.DOTALL)

# Strings are matched first so that their content is never taken for a key.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,\s])(-?\d+)(?=\s*:)')


def quote_integer_keys(text: str) -> str:
    """`{0:12}` → `{"0":12}`; everything inside strings stays as it is."""
    return _TOKEN.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], text)


def parse_table(data: bytes) -> dict[str, Any]:
    """Raises ValueError when the bytes are not one JSON object within the limits."""
    if len(data) > TABLE_SIZE_MAX:
        raise ValueError(f"longer than {TABLE_SIZE_MAX} bytes")
    text = quote_integer_keys(data.decode("utf-8"))
    try:
        table = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(table, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one error type for all bad content
    if is_deeper(table, DEPTH_MAX):
        raise ValueError(f"nested deeper than {DEPTH_MAX}")
    checksum = table.pop(CHECKSUM_FIELD, None)
    if checksum is None and any(_was_checksum(*field) for field in table.items()):
        # Without this, damage to the field's name would disable the check.
        raise ValueError("the name of the checksum field is damaged")
    if checksum is not None and checksum != table_checksum(table):
        raise ValueError("the checksum does not match")
    return table


def encode_table(table: dict[str, Any]) -> bytes:
    """The bytes of a table file, checksum included."""
    text = _canonical(table)
    head = f'{{"{CHECKSUM_FIELD}":"{_checksum_of(text)}"'
    return f"{head},{text[1:]}".encode() if table else f"{head}}}".encode()


def table_checksum(table: dict[str, Any]) -> str:
    """Over the canonical text, so that spacing and key order do not matter."""
    return _checksum_of(_canonical(table))


def _canonical(table: dict[str, Any]) -> str:
    return json.dumps(_as_read(table), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum_of(text: str) -> str:
    return f"crc32:{zlib.crc32(text.encode()):08x}"


def _was_checksum(name: str, value: object) -> bool:
    """Whether a field looks like the checksum field with a damaged name or value."""
    same = sum(a == b for a, b in zip(name, CHECKSUM_FIELD, strict=False))
    named = len(name) == len(CHECKSUM_FIELD) and 2 * same > len(CHECKSUM_FIELD)
    return named or (isinstance(value, str) and _CHECKSUM.match(value) is not None)


def _as_read(table: dict[str, Any]) -> dict[str, Any]:
    """The table with text keys, as a reader gets it; they sort differently from numbers."""
    plain: dict[str, Any] = json.loads(json.dumps(table, allow_nan=False))
    return plain


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is out of range")
    return number


class JsonTable:
    """One table file; the caller owns the content, this owns the bytes on disk."""

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file_system = file_system
        self._path = path
        # Whether this object has written or read the main file, so that it is not damaged.
        self._is_good = False

    def load(self) -> dict[str, Any] | None:
        """The newest readable content; None when the table was never stored.

        Raises `CorruptStore` when files exist but none of them can be parsed.
        """
        problems = []
        directory = self._path.rpartition("/")[0]
        if self._file_system.exists(directory or self._path):
            # After a kill the newest name may not be durable yet: sync it before it is used.
            self._file_system.sync_dir(directory)
        for path in (self._path, f"{self._path}.bak"):
            data = read_file(self._file_system, path)
            if data is None:
                continue
            try:
                table = parse_table(data)
            except ValueError as error:
                problems.append(f"{path}: {error}")
            else:
                self._is_good = path == self._path
                return table
        if problems:
            raise CorruptStore(
                self._path, 0, "; ".join(problems), "Restore the file or remove it to start empty"
            )
        return None

    def save(self, table: dict[str, Any]) -> None:
        """Replace the content; the previous one stays as `.bak`."""
        directory, _, _ = self._path.rpartition("/")
        if directory and self._file_system.make_dir(directory):
            self._file_system.sync_dir(directory.rpartition("/")[0])
        data = encode_table(table)
        if not self._is_good and self.is_damaged():
            # A damaged file must not replace the valid backup.
            self._file_system.unlink(self._path)
        self._is_good = False
        replace_file_keeping_backup(self._file_system, self._path, data)
        self._is_good = True

    def is_damaged(self) -> bool:
        """Whether the main file exists but cannot be parsed."""
        data = read_file(self._file_system, self._path)
        if data is None:
            return False
        try:
            parse_table(data)
        except ValueError:
            return True
        return False
