"""The JSON header of a plain send: the twin of `plain_send.c`.

Reads exactly the headers of SEND_MESSAGE_V2 for one ordinary message, or of SEND_BATCH_MESSAGE for
many, and returns None for all others: escapes outside the property text, other codes, flags,
retries, delays, duplicate keys, wrong types. The caller then falls back to the general decoder.
"""

from __future__ import annotations

import re
from typing import Final

from broker_core.codec.json.fields import I32_MAX, I32_MIN, I64_MAX, I64_MIN
from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.record_layout import CRC_PROPERTY
from broker_core.protocol_codes import RequestCode

__all__ = ["read_plain_send"]

ONE: Final = int(RequestCode.SEND_MESSAGE_V2)
BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)

PlainSendFields = tuple[int, int, str, int, int, int, int, bytes, bytes]
"""Opaque, version, topic, queue id, sysFlag, born time, flag, property text, unique key."""

_TEXT: Final = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\.)*)"', re.DOTALL)
_DIGITS: Final = re.compile(rb"[-0-9]*")
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,17}")
_PLAIN: Final = re.compile(rb"[^\\\x80-\xff]*", re.DOTALL)
_ESCAPED: Final = re.compile(rb'(?:[^\\\x80-\xff]|\\(?:u00[0-7][0-9a-fA-F]|["\\/]))*', re.DOTALL)
_ESCAPE: Final = re.compile(rb'\\(?:u([0-9a-fA-F]{4})|(["\\/]))')
_UNIQUE: Final = re.compile(rb"[0-9A-Za-z]+")
_SPECIAL: Final = frozenset(
    {b"DELAY", b"TRAN_MSG", b"POP_CK", b"CLUSTER", b"MSG_REGION", b"TRACE_ON", CRC_PROPERTY}
)
_NEEDED: Final = frozenset(b"abefghi")
_LETTERS: Final = frozenset(b"abcdefghijklmn")
_NUMBERS: Final = frozenset({b"code", b"flag", b"opaque", b"version"})
_IGNORED: Final = frozenset({b"language", b"serializeTypeCurrentRPC"})


class _NotPlain(Exception):
    """This header needs the general decoder."""


def read_plain_send(header: Buffer, suffix: Buffer, code: int, /) -> PlainSendFields | None:
    """The fields of a send that only needs to be stored; None for every other header.

    The text is the property text with its last separator and `suffix`. A batch may have no unique
    key of its own, since its messages have theirs.
    """
    try:
        return _HeaderReader(bytes(header)).read(bytes(suffix), code)
    except _NotPlain:
        return None


class _HeaderReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._top: dict[bytes, int] = {}
        self._fields: dict[int, bytes] = {}

    def read(self, suffix: bytes, code: int) -> PlainSendFields:
        self._take(b"{")
        self._take_entry()
        while self._next_is(b","):
            self._take_entry()
        self._take(b"}")
        _require(self._at == len(self._data))
        top, fields = self._top, self._fields
        _require({b"code", b"opaque", b"extFields"} <= top.keys())
        _require(top[b"code"] == code and top.get(b"flag", 0) == 0)
        _require((fields.get(ord("m")) == b"true") == (code == BATCH))
        _require(fields.keys() >= _NEEDED and fields[ord("b")] != b"")
        text = _unescaped(fields[ord("i")])
        unique = _plain_unique(text)
        _require(unique != b"" or code != ONE)
        return (
            top[b"opaque"],
            top.get(b"version", 0),
            fields[ord("b")].decode("ascii"),
            self._number("e", 0, I32_MAX),
            self._number("f", I32_MIN, I32_MAX),
            self._number("g", I64_MIN, I64_MAX),
            self._number("h", I32_MIN, I32_MAX),
            (text if text.endswith(b"\x02") else text + b"\x02") + suffix,
            unique,
        )

    def _take_entry(self) -> None:
        name = self._take_text()
        self._take(b":")
        _require(name not in self._top)
        self._top[name] = 0
        if name in _NUMBERS:
            found = _DIGITS.match(self._data, self._at)
            assert found is not None
            self._at = found.end()
            self._top[name] = _number(found[0], I32_MIN, I32_MAX)
        elif name == b"extFields":
            self._take_fields()
        else:
            _require(name in _IGNORED and _is_plain(self._take_text()))

    def _take_fields(self) -> None:
        self._take(b"{")
        if self._next_is(b"}"):
            return
        self._take_field()
        while self._next_is(b","):
            self._take_field()
        self._take(b"}")

    def _take_field(self) -> None:
        name = self._take_text()
        self._take(b":")
        value = self._take_text()
        if len(name) != 1:
            _require(name != b"" and _is_plain(name) and _is_plain(value))
            return
        letter = name[0]
        _require(letter in _LETTERS and letter not in self._fields)
        _require(name == b"i" or _is_plain(value))
        _require(name != b"j" or value == b"0")
        _require(name != b"m" or value in (b"true", b"false"))
        self._fields[letter] = value

    def _take_text(self) -> bytes:
        found = _TEXT.match(self._data, self._at)
        if found is None:
            raise _NotPlain
        self._at = found.end()
        return found[1]

    def _take(self, wanted: bytes) -> None:
        _require(self._next_is(wanted))

    def _next_is(self, wanted: bytes) -> bool:
        is_next = self._data.startswith(wanted, self._at)
        self._at += is_next
        return is_next

    def _number(self, letter: str, least: int, most: int) -> int:
        return _number(self._fields[ord(letter)], least, most)


def _require(condition: bool) -> None:
    if not condition:
        raise _NotPlain


def _is_plain(text: bytes) -> bool:
    return _PLAIN.fullmatch(text) is not None


def _number(text: bytes, least: int, most: int) -> int:
    _require(_NUMBER.fullmatch(text) is not None and least <= int(text) <= most)
    return int(text)


def _unescaped(text: bytes) -> bytes:
    _require(text != b"" and _ESCAPED.fullmatch(text) is not None)
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)) if found[1] else found[2], text)


def _plain_unique(text: bytes) -> bytes:
    """The unique key, if all pairs are ordinary ones."""
    unique = b""
    for pair in text.removesuffix(b"\x02").split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        _require(name != b"" and value != b"")
        _require(name not in _SPECIAL and not name.startswith(b"TIMER_"))
        _require(name != b"WAIT" or value == b"true")
        if name == b"UNIQ_KEY":
            _require(unique == b"")
            unique = value
    _require(unique == b"" or _UNIQUE.fullmatch(unique) is not None)
    return unique
