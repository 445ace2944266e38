"""Java `.properties` text: read from a file, parsed, written.

The grammar is Java's: `#` and `!` begin comments, `=`, `:` or a space separate key and value, a
backslash at the end continues a line, `\\uXXXX` and `\\t` are characters, and of equal keys the
last one wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from broker_core.errors import InvalidConfig

FILE_SIZE_MAX: Final = 1 << 20

_BLANKS: Final = " \t\f"
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
# Key, separator, value; a backslash escapes the next character.
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL: Final[Mapping[str, str]] = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str) -> dict[str, str]:
    """The keys and values of a file; `InvalidConfig` when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_SIZE_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidConfig("configFile", path, f"the file cannot be read: {reason}") from error
    if len(data) > FILE_SIZE_MAX:
        raise InvalidConfig("configFile", path, f"a file of at most {FILE_SIZE_MAX} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Java's encoding. No key of ours needs another one, only comments may.
        text = data.decode("latin-1")
    return parse_properties(text, path)


def parse_properties(text: str, source: str = "properties") -> dict[str, str]:
    """The keys and values of a text; `source` is named in errors."""
    found = {}
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        assert entry is not None  # every text matches
        where = f"{source}, line {number}"
        found[_unescaped(entry[1], where)] = _unescaped(entry[2], where).strip()
    return found


def property_lines(properties: Mapping[str, str]) -> str:
    """`key=value` lines as the administration tools read them."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def expanded_path(path: str) -> str:
    """`path` with a leading `~` replaced by the home directory."""
    try:
        return str(Path(path).expanduser())
    except RuntimeError as error:
        raise InvalidConfig("storePathRootDir", path, f"a path without ~: {error}") from error


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, without comments and empty ones; numbered from 1."""
    pending = ""
    first = 0
    for number, line in enumerate(_LINE_ENDS.split(text), 1):
        part = line.lstrip(_BLANKS)
        if not pending:
            if not part or part[0] in "#!":
                continue
            first = number
        backslashes = len(part) - len(part.rstrip("\\"))
        if backslashes % 2:
            pending += part[:-1]
        else:
            yield first, pending + part
            pending = ""
    if pending:
        yield first, pending


def _unescaped(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def character(found: re.Match[str]) -> str:
        escape = found[1]
        if escape[0] != "u":
            return _CONTROL.get(escape, escape)
        if len(escape) == 1:
            raise InvalidConfig("\\u", text, "four hexadecimal digits after \\u", where)
        return chr(int(escape[1:], 16))

    return _ESCAPE.sub(character, text)


def _escaped(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped[:1] in (" ", "\t", "\f") else escaped
