"""Avro types, each with encoded values: good ones, and ones that break one rule.

Written by hand, so that a mistake of one encoder cannot hide.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple


def number(value: int) -> bytes:
    """An int or long."""
    zigzag = (value << 1) ^ (value >> 63)
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes((*found, zigzag))


def sized(value: bytes | str) -> bytes:
    """A string or bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return number(len(raw)) + raw


def logical(kind: str, meaning: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


def record(name: str, **fields: Any) -> dict[str, Any]:
    named = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": named}


class Case(NamedTuple):
    schema: Any
    good: list[bytes]
    damaged: tuple[bytes, ...] = ()
    """Encodings that are not valid."""


END: Final = 7


def body(value: bytes) -> bytes:
    """The body of a record (`whole`) with this value."""
    return value + number(END)


def whole(schema: Any) -> dict[str, Any]:
    """A record whose field x is the case's; what comes after it shows where its end was seen."""
    return record("Whole", x=schema, end="int")


_F32: Final = struct.Struct("<f").pack
_F64: Final = struct.Struct("<d").pack
_INTS: Final = [number(n) for n in (0, 1, -1, 63, 64, -65, (1 << 31) - 1, -(1 << 31))]
_LONGS: Final = [*_INTS, *(number(n) for n in ((1 << 63) - 1, -(1 << 63), 1 << 40))]
_TOO_LONG: Final = bytes([0xFF] * 10 + [0])
_NOT_UTF8: Final = sized(b"a\xff")
_DATES: Final = [number(n) for n in (0, -1, 19_874, -719_162, 2_932_896, (1 << 31) - 1)]
_TIMES: Final = [number(n) for n in (0, -1, 1_717_156_800_001, -62_135_596_800_000)]
_LINE: Final = record("Line", n="int", s=["null", "string"])
_LINES: Final = [number(3) + b"\0", number(-3) + b"\x02" + sized("é")]
_SIZE: Final = {"type": "enum", "name": "Size", "symbols": ["S", "M", "L"]}
_F3: Final = {"type": "fixed", "name": "F3", "size": 3}
_ITEMS: Final = {"type": "array", "items": "int"}
_ENTRIES: Final = {"type": "map", "values": "long"}

CASES: Final[dict[str, Case]] = {
    "boolean": Case("boolean", [b"\0", b"\x01"], (b"\x02", b"\xff")),
    "int": Case("int", _INTS, (number(1 << 31), number(1 << 40), _TOO_LONG)),
    "long": Case("long", _LONGS, (_TOO_LONG,)),
    "float": Case(
        "float",
        [_F32(f) for f in (0.0, -0.0, 1.5, 3.4e38, 1e-45, float("inf"), float("nan"))],
    ),
    "double": Case(
        "double", [_F64(f) for f in (0.0, -0.0, 0.1, 1.7e308, 5e-324, float("-inf"), float("nan"))]
    ),
    "string": Case(
        "string", [sized(text) for text in ("", "a", "é😀", "\0", "x" * 300)],
        (_NOT_UTF8, sized(b"\xed\xa0\x80"), number(-1), number(1 << 20)),
    ),
    "bytes": Case("bytes", [sized(b""), sized(b"\0\xff"), sized(bytes(300))],
                  (number(-1), number(-(1 << 40)), number(1 << 20))),
    "enum": Case(_SIZE, [b"\0", b"\x02", b"\x04"], (b"\x06", b"\x01", number(1 << 33))),
    "fixed": Case(_F3, [b"abc", b"\0\xff\0"]),
    "null": Case("null", [b""]),
    "record": Case(_LINE, _LINES),
    "empty record": Case(record("Empty"), [b""]),
    "nested records": Case(record("A", b=record("B", c=record("C", d=["null", _LINE]))),
                           [b"\0", *(b"\x02" + line for line in _LINES)]),
    "array": Case(
        _ITEMS,
        [b"\0", b"\x02" + number(5) + b"\0", b"\x02\x08\x02\x0a\0", b"\x03\x04\x08\x0a\0"],
        (number(1 << 40), b"\x02\x08"),
    ),
    "array of records that may be null": Case(
        {"type": "array", "items": ["null", _LINE]},
        [b"\0", b"\x04\0\x02" + _LINES[1] + b"\0"], (b"\x02\x04\0",),
    ),
    "map": Case(
        _ENTRIES,
        [b"\0", b"\x02" + sized("k") + b"\x08\0",
         b"\x04" + sized("a") + b"\x02" + sized("b") + b"\x04\0",
         b"\x02" + sized("k") + b"\x02\x02" + sized("k") + b"\x04\0"],
        (b"\x02" + _NOT_UTF8 + b"\x08\0",),
    ),
    "map of maps": Case(
        {"type": "map", "values": {"type": "map", "values": ["null", "double"]}},
        [b"\0", b"\x02" + sized("k") + b"\x02" + sized("l") + b"\x02" + _F64(0.5) + b"\0\0"],
    ),
    "date": Case(logical("int", "date"), _DATES),
    "timestamp-millis": Case(
        logical("long", "timestamp-millis"), [*_TIMES, number(1 << 53)], (number(1 << 62),)
    ),
    "timestamp-micros": Case(logical("long", "timestamp-micros"), [*_TIMES, *_LONGS]),
    "timestamp-nanos": Case(logical("long", "timestamp-nanos"), _TIMES),
    "local-timestamp-millis": Case(
        logical("long", "local-timestamp-millis"), _TIMES, (number(-(1 << 62)),)
    ),
    "local-timestamp-micros": Case(logical("long", "local-timestamp-micros"), [*_TIMES, *_LONGS]),
    "local-timestamp-nanos": Case(logical("long", "local-timestamp-nanos"), _TIMES),
    "time-millis": Case(logical("int", "time-millis"), _INTS[:4]),
    "time-micros": Case(logical("long", "time-micros"), _LONGS[:4]),
    "uuid": Case(logical("string", "uuid"), [sized("6ba7b810-9dad-11d1-80b4-00c04fd430c8")]),
    "duration": Case(logical("fixed", "duration", name="Du", size=12), [bytes(range(12))]),
    "unknown logical type": Case(logical("int", "unheard-of"), _INTS),
    "logical type of another type": Case(logical("string", "date"), [sized("2024")]),
    "decimal": Case(
        logical("bytes", "decimal", precision=10, scale=2),
        [sized(b"\0"), sized(b"\xff"), sized(b"\0\xff8"), sized((10**10 - 1).to_bytes(5, "big"))],
        (sized((10**10).to_bytes(5, "big")), sized(b"\x7f" * 20), sized(b"")),
    ),
    "decimal(38,38)": Case(
        logical("bytes", "decimal", precision=38, scale=38),
        [sized(b"\x01"), sized((10**38 - 1).to_bytes(16, "big"))],
    ),
    "decimal of a fixed": Case(
        logical("fixed", "decimal", name="F9", size=9, precision=20, scale=0),
        [bytes(8) + b"\x05", b"\xff" * 9], (b"\x7f" + bytes(8),),
    ),
    "decimal(39,0)": Case(logical("bytes", "decimal", precision=39), [sized(b"\x01")]),
    "decimal of an invalid scale": Case(
        logical("bytes", "decimal", precision=2, scale=3), [sized(b"\x01")]
    ),
    "union of null and string": Case(["null", "string"], [b"\0", b"\x02" + sized("a")],
                                     (b"\x04", b"\x01", b"\x02" + _NOT_UTF8)),
    "union of string and null": Case(["string", "null"], [b"\x02", b"\0" + sized("a")], (b"\x04",)),
    "union of one": Case(["long"], [b"\0" + n for n in _LONGS], (b"\x02\x02",)),
    "union of null alone": Case(["null"], [b"\0"], (b"\x02",)),
    "union of int and long": Case(
        ["int", "long"], [b"\0\x02", b"\x02" + _LONGS[-1]], (b"\x04\x02",)
    ),
    "union of null, int and long": Case(
        ["null", "int", "long"], [b"\0", b"\x02\x02", b"\x04" + _LONGS[-1]], (b"\x06\x02",)
    ),
    "union of float and double": Case(
        ["float", "double"], [b"\0" + _F32(0.1), b"\x02" + _F64(0.1)]
    ),
    "union of int and string": Case(["int", "string"], [b"\0\x02", b"\x02" + sized("a")]),
    "union of null, string and record": Case(
        ["null", "string", _LINE], [b"\0", b"\x02" + sized("a"), b"\x04" + _LINES[0]]
    ),
    "union of null and enum": Case(["null", _SIZE], [b"\0", b"\x02\x04"], (b"\x02\x06",)),
    "union of null and decimal": Case(
        ["null", logical("bytes", "decimal", precision=4, scale=1)],
        [b"\0", b"\x02" + sized(b"\x0f")],
    ),
    "union of null and timestamp": Case(
        ["null", logical("long", "timestamp-millis")], [b"\0", *(b"\x02" + n for n in _TIMES)]
    ),
    "record that contains itself": Case(
        record("Tree", n="int", next=["null", "Tree"]), [b"\x02\0", b"\x02\x02\x04\0"]
    ),
}  # fmt: skip
