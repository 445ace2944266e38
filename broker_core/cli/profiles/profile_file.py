"""The file of profiles: `~/.config/rmq/profiles.conf`, which only its owner may read.

    [prod]
    namesrv = a:9876;b:9876
    access-key = shop
    # or secret-key = …
    secret-key-file = prod.secret
    tls = true
    # paths are relative to this file
    tls-ca = ca.pem

A change rewrites the lines of one profile; comments and other profiles stay as they are.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from broker_core.access.credentials import read_private_file
from broker_core.cli.command_parser import address_list
from broker_core.errors import InvalidConfig

DIRECTORY_VARIABLE: Final = "RMQ_CONFIG_DIR"
FILE_NAME: Final = "profiles.conf"

_SIZE_MAX: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PATHS: Final = ("secret_key_file", "tls_ca", "tls_cert", "tls_key")
_FLAGS: Final = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True)
class Profile:
    """A cluster and how to connect to it. Paths are absolute."""

    namesrv: str = ""
    access_key: str = ""
    secret_key_file: str = ""
    secret_key: str = field(default="", repr=False)
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""

    def problem(self) -> str:
        """Why these values cannot be used together; empty if they can."""
        if self.namesrv:
            try:
                address_list(self.namesrv)
            except argparse.ArgumentTypeError as error:
                return f"namesrv: {error}"
        if self.secret_key_file and self.secret_key:
            return "give secret-key-file or secret-key, not both"
        secret = self.secret_key_file or self.secret_key
        if self.access_key and not secret:
            return "access-key needs secret-key-file or secret-key"
        if secret and not self.access_key:
            return "secret-key needs access-key"
        for name in ("tls_ca", "tls_cert", "tls_key"):
            if getattr(self, name) and not self.tls:
                return f"{_key(name)} needs tls = true"
        if bool(self.tls_cert) != bool(self.tls_key):
            return "tls-cert and tls-key go together"
        return ""


def _key(name: str) -> str:
    return name.replace("_", "-")


KEYS: Final = tuple(_key(each.name) for each in fields(Profile))


def config_directory(environment: Mapping[str, str]) -> Path:
    """`RMQ_CONFIG_DIR`, else `rmq` in `XDG_CONFIG_HOME`, else in `~/.config`."""
    own = environment.get(DIRECTORY_VARIABLE)
    if own:
        return Path(own)
    shared = environment.get("XDG_CONFIG_HOME", "")
    if Path(shared).is_absolute():
        return Path(shared, "rmq")
    home = environment.get("HOME")
    return (Path(home) if home else Path.home()) / ".config" / "rmq"


def is_profile_name(name: str) -> bool:
    """Whether a profile may be called this."""
    return _NAME.fullmatch(name) is not None


class ProfileFile:
    """Reads and changes the profiles of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Profile]:
        """Every profile by name; none if there is no file. Raises `InvalidConfig`."""
        return parse_profiles(self._text(), self.path)

    def put(self, name: str, profile: Profile) -> None:
        """Add the profile, or replace the one of that name."""
        lines, place = self._place(name)
        block = [f"[{name}]", *_lines_of(profile)]
        if place.start and lines[place.start - 1].strip():
            block.insert(0, "")
        if place.stop < len(lines):
            block.append("")
        lines[place] = block
        self._write(lines)

    def remove(self, name: str) -> bool:
        """Remove the profile; False if there is none of that name."""
        lines, place = self._place(name)
        if place.start == len(lines):
            return False
        del lines[place]
        self._write(lines)
        return True

    def _place(self, name: str) -> tuple[list[str], slice]:
        """All lines, and the range of the profile's; an empty range at the end if there is none."""
        text = self._text()
        # A file that cannot be read is not changed either.
        parse_profiles(text, self.path)
        lines = text.splitlines()
        heads = [number for number, line in enumerate(lines) if line.strip().startswith("[")]
        for number, end in zip(heads, [*heads, len(lines)][1:], strict=True):
            if lines[number].strip()[1:-1].strip() == name:
                return lines, slice(number, end)
        return lines, slice(len(lines), len(lines))

    def _text(self) -> str:
        if not self.path.exists():
            return ""
        data = read_private_file(str(self.path), "profiles", _SIZE_MAX)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidConfig("profiles", str(self.path), "a file in UTF-8") from None

    def _write(self, lines: list[str]) -> None:
        """Replace the file; a reader sees the old one or the new one, of mode 0600."""
        # A link, as of a repository of settings, stays one.
        path = self.path.resolve()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.draft")
        # One that a killed process left may have another mode.
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        draft.write_text("\n".join(lines).strip("\n") + "\n", encoding="utf-8")
        draft.replace(path)


def parse_profiles(text: str, path: Path) -> dict[str, Profile]:
    """The profiles of a file's text. Raises `InvalidConfig` that names the line, never a secret."""
    found: dict[str, dict[str, Any]] = {}
    values: dict[str, Any] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        try:
            if words.startswith("["):
                values = found[_section(words, found)] = {}
            else:
                name, value = _setting(words, values)
                assert values is not None
                values[name] = value
        except ValueError as error:
            raise InvalidConfig("profiles", str(path), f"line {number}: {error}") from None
    profiles = {}
    for name, given in found.items():
        for key in _PATHS:
            if given.get(key):
                given[key] = str(path.parent / Path(given[key]).expanduser())
        try:
            given["tls"] = _flag(given.get("tls", "false"))
            profiles[name] = Profile(**given)
            problem = profiles[name].problem()
        except ValueError as error:
            problem = str(error)
        if problem:
            raise InvalidConfig("profiles", str(path), f"[{name}] {problem}")
    return profiles


def _section(words: str, found: Mapping[str, Any]) -> str:
    name = words[1:-1].strip() if words.endswith("]") else words[1:]
    if not is_profile_name(name) or not words.endswith("]"):
        raise ValueError(f"{name!r:.80} is not a name of a profile: letters, digits, . _ -")
    if name in found:
        raise ValueError(f"[{name}] is there twice")
    return name


def _setting(words: str, values: Mapping[str, Any] | None) -> tuple[str, str]:
    key, equals, value = words.partition("=")
    key = key.strip()
    # Only keys are shown: what follows may be a secret.
    if not equals:
        first = re.split(r"[:\s]", words)[0]
        raise ValueError(f"{first!r:.40} is not KEY = VALUE")
    if values is None:
        raise ValueError(f"{key!r:.40} is before the first [NAME]")
    if key not in KEYS:
        raise ValueError(_unknown(key))
    if key.replace("-", "_") in values:
        raise ValueError(f"{key} is there twice")
    return key.replace("-", "_"), value.strip()


def _unknown(key: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key.lower(), KEYS, 1)
    hint = f"did you mean {near[0]}?" if near else f"keys are {', '.join(KEYS)}"
    return f"unknown key {key!r:.40}; {hint}"


def _flag(text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ValueError(f"tls: {text!r:.40} is neither true nor false")
    return _FLAGS[text.lower()]


def _lines_of(profile: Profile) -> Iterator[str]:
    for each in fields(Profile):
        value = getattr(profile, each.name)
        if value:
            yield f"{_key(each.name)} = {'true' if value is True else value}"
