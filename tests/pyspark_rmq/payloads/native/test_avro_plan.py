"""Avro schemas as plans: every type, framing with ids, and what is left to Python."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from pyspark_rmq.payloads.avro.bodies import AvroDecoder
from pyspark_rmq.payloads.avro.schemas import parse_schema
from pyspark_rmq.payloads.native.avro_plan import planned_avro
from pyspark_rmq.payloads.schema_options import ALWAYS, AUTO, NONE, SchemaOptions
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ
from tests.pyspark_rmq.payloads.native.compared_decoders import assert_equal, fuzz, mixed

pytest.importorskip(
    "pyspark_rmq.payloads.native._columns",
    reason="the native payload decoders are not built: python setup.py build_ext --inplace",
)

SEEDS = st.integers(0, 2**32 - 1)
MONEY = {"logicalType": "decimal", "precision": 4, "scale": 1}
LINE = {"type": "record", "name": "Line", "fields": [{"name": "a", "type": "int"}]}
FIELDS: list[tuple[str, Any, Any]] = [
    ("i", "int", pa.int8()),
    ("wide", "int", pa.float64()),
    ("l", "long", pa.int16()),
    ("big", ["null", "long"], pa.int64()),
    ("f", "float", pa.float64()),
    ("d", ["double", "null"], pa.float64()),
    ("s", ["null", "string"], pa.string()),
    ("b", "bytes", pa.binary()),
    ("x", {"type": "fixed", "name": "X", "size": 2}, pa.binary()),
    ("e", {"type": "enum", "name": "E", "symbols": ["A", "", "Émile"]}, pa.string()),
    ("money", {"type": "bytes", **MONEY}, pa.decimal128(10, 3)),
    ("small", {"type": "fixed", "name": "M", "size": 3, **MONEY}, pa.decimal128(4, 1)),
    ("day", {"type": "int", "logicalType": "date"}, pa.date32()),
    ("ms", {"type": "long", "logicalType": "timestamp-millis"}, TIMESTAMP),
    ("us", {"type": "long", "logicalType": "timestamp-micros"}, TIMESTAMP),
    ("local", {"type": "long", "logicalType": "local-timestamp-millis"}, TIMESTAMP_NTZ),
    ("y", "boolean", pa.bool_()),
    ("line", ["null", LINE], pa.struct([("a", pa.int32())])),
    ("lines", {"type": "array", "items": "Line"}, pa.list_(pa.struct([("a", pa.int64())]))),
    ("map", {"type": "map", "values": ["null", "int"]}, pa.map_(pa.string(), pa.int32())),
    ("two", ["null", "int", "long"], pa.int64()),
]
SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [{"name": name, "type": schema} for name, schema, _ in FIELDS],
}
KIND = pa.struct([(name, kind) for name, _, kind in FIELDS])


def number(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*found, zigzag])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def body(chance: Random) -> bytes:
    """A body of SCHEMA; now and then a value that does not fit its column."""
    small = chance.choice([0, -1, 127, 128, -129])
    big = chance.choice([0, 1, -(1 << 63), (1 << 63) - 1, 1 << 40])
    parts = [
        number(small), number(-5), number(chance.choice([7, 40_000])), number(1) + number(big),
        chance.randbytes(4), number(0) + chance.randbytes(8), number(1) + text("é".encode()),
        text(b"\xff\x00"), b"xy", number(chance.randrange(3)), text(chance.randbytes(2)),
        chance.randbytes(3), number(19_000), number(chance.choice([5, 1 << 62])), number(big),
        number(-7), bytes([chance.randrange(2)]),
        chance.choice([number(0), number(1) + number(3)]),
        chance.choice([b"\0", number(2) + number(1) + number(2) + b"\0",
                       number(-1) + number(1) + number(9) + b"\0"]),
        chance.choice([b"\0", number(2) + text(b"k") + number(0) + text(b"l") + number(1)
                       + number(8) + b"\0",
                       number(2) + text(b"k") + number(0) + text(b"k") + number(0) + b"\0"]),
        chance.choice([number(0), number(1) + number(1), number(2) + number(big)]),
    ]  # fmt: skip
    return b"".join(parts)


def options(framing: str, *numbers: int | None) -> SchemaOptions:
    return SchemaOptions("value.schema", tuple((n, json.dumps(SCHEMA)) for n in numbers), framing)


@settings(max_examples=25, deadline=None)
@for_all(SEEDS)
def test_every_type_equals_python(seed: int) -> None:
    chance = Random(seed)
    fields = list(KIND)
    chance.shuffle(fields)
    kind = pa.struct(fields[: chance.randint(1, len(fields))])
    schemas = {None: parse_schema(json.dumps(SCHEMA), "value.schema")}
    decoder = AvroDecoder(kind, options(NONE, None))
    planned = planned_avro(kind, schemas, NONE)
    fuzz(decoder, planned, [body(chance) for _ in range(5)], seed, 40)


@settings(max_examples=15, deadline=None)
@for_all(SEEDS, st.sampled_from([(AUTO, None), (AUTO, None, 7), (AUTO, 7), (ALWAYS, 7, None)]))
def test_framing_equals_python(seed: int, given: tuple[Any, ...]) -> None:
    framing, *numbers = given
    chance = Random(seed)
    kind = pa.struct([field for field in KIND if field.name in ("i", "s", "lines")])
    plain = [body(chance) for _ in range(3)]
    framed = [
        b"\0" + chance.choice([7, 8]).to_bytes(4, "big") + one for one in plain for _ in range(2)
    ]
    decoder = AvroDecoder(kind, options(framing, *numbers))
    assert_equal(decoder, mixed([*plain, *framed, b"\0" * 40], chance, 40))


def test_a_plain_body_that_begins_with_zero_is_not_left_to_python() -> None:
    schema = {
        "type": "record", "name": "R",
        "fields": [{"name": "a", "type": ["null", "int"]}, {"name": "s", "type": "string"}],
    }  # fmt: skip
    kind = pa.struct([("a", pa.int32()), ("s", pa.string())])
    planned = planned_avro(kind, {None: parse_schema(json.dumps(schema), "value.schema")}, AUTO)
    assert planned is not None
    bodies = [b"\0" + text(b"abcde"), b"\0\0\0\0\x07" + b"\0" + text(b"framed")]
    values, refused = planned.columns(pa.array(bodies, pa.binary()))
    assert not len(refused)
    assert values.to_pylist() == [{"a": None, "s": "abcde"}, {"a": None, "s": "framed"}]


def test_a_body_that_can_be_read_both_ways_is_left_to_python() -> None:
    schema = {
        "type": "record", "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "bytes"}],
    }  # fmt: skip
    kind = pa.struct([("b", pa.binary())])
    schemas = {None: parse_schema(json.dumps(schema), "value.schema")}
    planned = planned_avro(kind, schemas, AUTO)
    assert planned is not None
    _, refused = planned.columns(pa.array([b"\0\x0axyz\x02\0", b"\x02\x02x"], pa.binary()))
    assert list(refused) == [0]


def test_a_body_with_a_rare_form_that_can_be_read_both_ways_is_left_to_python() -> None:
    """A key that occurs twice is refused, and valid."""
    schema = json.dumps({
        "type": "record", "name": "R",
        "fields": [
            {"name": "f", "type": "float"},
            {"name": "m", "type": {"type": "map", "values": ["string", "null"]}},
        ],
    })  # fmt: skip
    kind = pa.struct([("f", pa.float32()), ("m", pa.map_(pa.string(), pa.string()))])
    key = text(b"k0")
    plain = b"\0\0\xc0\x3f" + b"\x03\x0e" + key + number(1) + text(b"k") + number(1)
    plain += number(2) + key + number(1) + text(b"k1") + number(1) + b"\0"
    given = SchemaOptions("value.schema", ((None, schema),), AUTO)
    found = assert_equal(AvroDecoder(kind, given), [plain])
    [bad] = found.bad
    assert bad.reason.startswith("it can be read with a schema id")


def test_a_union_with_null_is_no_null_payload() -> None:
    schema = ["null", {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}]
    decoder = AvroDecoder(
        pa.struct([("a", pa.int32())]),
        SchemaOptions("value.schema", ((None, json.dumps(schema)),), NONE),
    )
    found = assert_equal(decoder, [b"\x02\x04", b"\0", b"\x02\x06"])
    assert found.values.to_pylist() == [{"a": 2}, None, {"a": 3}]
    assert [row for row, _ in found.bad] == [1]


def test_a_huge_schema_is_left_to_python() -> None:
    inner: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}
    for level in range(1, 6):
        fields = [{"name": "f0", "type": inner}]
        fields += [{"name": f"f{n}", "type": f"R{level - 1}"} for n in range(1, 8)]
        inner = {"type": "record", "name": f"R{level}", "fields": fields}
    inner["fields"].append({"name": "z", "type": "int"})
    schemas = {None: parse_schema(json.dumps(inner), "value.schema")}
    assert planned_avro(pa.struct([("z", pa.int32())]), schemas, NONE) is None
