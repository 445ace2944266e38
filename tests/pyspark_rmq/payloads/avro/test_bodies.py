"""Avro bodies: golden bytes from the specification, frames, and bytes that are bad."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, settings
from hypothesis import given as for_all
from hypothesis import strategies as st

from broker_core import errors
from pyspark_rmq.payloads.avro.bodies import AvroDecoder
from pyspark_rmq.payloads.avro.encoding import AvroEncoder
from pyspark_rmq.payloads.schema_options import ALWAYS, NONE, SchemaOptions
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ
from tests.pyspark_rmq.payloads.avro.typed_schemas import given, schema_of

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C", "D"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
MONEY = {"logicalType": "decimal", "precision": 4, "scale": 2}


def one(kind: str, logical: str) -> Any:
    return {"type": kind, "logicalType": logical}


def record(*types: Any) -> Any:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


def decode(schema: Any, kind: Any, *bodies: bytes, framing: str = NONE) -> Any:
    """The first fields, and reasons of bad rows."""
    decoder = AvroDecoder(pa.struct([("f0", kind)]), given(schema, framing))
    found = decoder.decode(pa.array(bodies, pa.binary()))
    return found.values.flatten()[0].to_pylist(), [reason for _, reason in found.bad]


@pytest.mark.parametrize(
    ("schema", "kind", "body", "value"),
    [
        ("long", pa.int64(), "00", 0), ("long", pa.int64(), "01", -1),
        ("long", pa.int64(), "02", 1), ("long", pa.int64(), "7f", -64),
        ("long", pa.int64(), "8001", 64),
        ("long", pa.int64(), "feffffffffffffffff01", (1 << 63) - 1),
        ("long", pa.int64(), "ffffffffffffffffff01", -(1 << 63)),
        # Longer than needed, and within 64 bits: Java accepts it, too.
        ("long", pa.int64(), "828000", 1),
        ("int", pa.int32(), "feffffff0f", (1 << 31) - 1), ("int", pa.int64(), "03", -2),
        ("int", pa.int8(), "ff01", -128), ("int", pa.float64(), "04", 2.0),
        ("boolean", pa.bool_(), "01", True), ("boolean", pa.bool_(), "00", False),
        ("string", pa.string(), "06666f6f", "foo"), ("bytes", pa.binary(), "0400ff", b"\0\xff"),
        ("float", pa.float32(), "0000c03f", 1.5), ("float", pa.float64(), "0000c03f", 1.5),
        ("double", pa.float64(), "000000000000f83f", 1.5),
        (ENUM, pa.string(), "06", "D"), (FIXED, pa.binary(), "0102", b"\1\2"),
        (["null", "string"], pa.string(), "00", None),
        (["null", "string"], pa.string(), "020261", "a"),
        (["int", "null", "long"], pa.int64(), "0405", -3), ("null", pa.string(), "", None),
        ({"type": "array", "items": "long"}, pa.list_(pa.int64()), "04063600", [3, 27]),
        # Two blocks, one with its size.
        ({"type": "array", "items": "long"}, pa.list_(pa.int64()), "0206010236 00", [3, 27]),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32()), "0202610800",
         [("a", 4)]),
        (record("int", "int") | {"name": "In"}, pa.struct([("f1", pa.int32())]), "0204", {"f1": 2}),
        ({"type": "bytes", **MONEY}, pa.decimal128(4, 2), "04ff38", decimal.Decimal("-2.00")),
        ({"type": "bytes", **MONEY}, pa.decimal128(9, 4), "0405dc", decimal.Decimal("15.0000")),
        ({**FIXED, **MONEY}, pa.decimal128(4, 2), "00c8", decimal.Decimal("2.00")),
        (one("int", "date"), pa.date32(), "01", datetime.date(1969, 12, 31)),
        (one("long", "timestamp-millis"), TIMESTAMP, "01", datetime.datetime(
            1969, 12, 31, 23, 59, 59, 999_000, datetime.timezone.utc)),
        (one("long", "timestamp-micros"), TIMESTAMP, "02", datetime.datetime(
            1970, 1, 1, 0, 0, 0, 1, datetime.timezone.utc)),
        (one("long", "local-timestamp-micros"), TIMESTAMP_NTZ, "02", datetime.datetime(
            1970, 1, 1, 0, 0, 0, 1)),
        (one("long", "timestamp-millis"), pa.int64(), "02", 1),
    ],
)  # fmt: skip
def test_golden_bytes(schema: Any, kind: Any, body: str, value: Any) -> None:
    # Two unread fields around it: their ends are found, too.
    whole = record(schema, {"type": "array", "items": "string"}, "boolean")
    raw = bytes.fromhex(body)
    assert decode(whole, kind, raw + bytes.fromhex("02 04 6869 00 01")) == ([value], [])


@pytest.mark.parametrize(
    ("schema", "kind", "body", "reason"),
    [
        ("long", pa.int64(), "", "ends too early"),
        ("long", pa.int64(), "80", "ends too early"),
        ("long", pa.int64(), "0200", "1 bytes are left over"),
        ("long", pa.int64(), "ff" * 10 + "01", "more than 64 bits"),
        ("long", pa.int64(), "ff" * 9 + "02", "more than 64 bits"),
        ("long", pa.int64(), "80" * 10 + "00", "more than 64 bits"),
        ("int", pa.int64(), "8080808010", "2147483648 is no int"),
        ("int", pa.int8(), "8002", "value.f0 is 128, which is not TINYINT"),
        ("boolean", pa.bool_(), "02", "2 is no boolean"),
        ("double", pa.float64(), "00" * 7, "ends too early"),
        ("string", pa.string(), "0661", "a value of 3 bytes"),
        ("string", pa.string(), "0161", "a value of -1 bytes"),
        ("string", pa.string(), "02ff", "a text is not UTF-8"),
        ("bytes", pa.binary(), "feffffffffffffffff01", "a value of 9223372036854775807 bytes"),
        (FIXED, pa.binary(), "01", "ends too early"),
        (ENUM, pa.string(), "08", "symbol 4 of 4"), (ENUM, pa.string(), "01", "symbol -1 of 4"),
        (["null", "int"], pa.int32(), "04", "branch 2 of a union of 2"),
        (["null", "int"], pa.int32(), "01", "branch -1 of a union of 2"),
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), "fe" * 8 + "01", "a block of"),
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), "ff" * 9 + "0100", "a block of"),
        ({"type": "bytes", **MONEY}, pa.decimal128(4, 2), "0602e0b0", "too large for DECIMAL(4,2)"),
        ({"type": "bytes", **MONEY}, pa.decimal128(4, 2), "00", "or has no bytes"),
        (one("long", "timestamp-millis"), TIMESTAMP, "feffffffffffffffff01", "is not a valid time"),
    ],
)  # fmt: skip
def test_bad_bytes(schema: Any, kind: Any, body: str, reason: str) -> None:
    values, [found] = decode(record(schema), kind, bytes.fromhex(body))
    assert values == [None]
    assert reason in found


@pytest.mark.parametrize(
    ("schema", "kind", "text"),
    [
        ("string", pa.int32(), "value.f0 is INT, and Avro's string is not read as it"),
        ("long", pa.float64(), "Avro's long is not read"),
        ("double", pa.float32(), "Avro's double is not read"),
        ("long", TIMESTAMP, "Avro's long is not read"),
        ("bytes", pa.decimal128(4, 2), "Avro's bytes is not read"),
        ({"type": "bytes", **MONEY}, pa.decimal128(4, 1), r"decimal\(4,2\)\) is not read"),
        (["int", "string"], pa.string(), "Avro's int is not read"),
        ("string", pa.struct([("a", pa.int32())]), "is STRUCT, and Avro's string"),
        (record("int") | {"name": "In"}, pa.struct([("a", pa.int32())]), "In has no field a"),
        (record("int") | {"name": "In"}, pa.string(), "Avro's record is not read"),
    ],
)
def test_types_that_do_not_fit(schema: Any, kind: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        decode(record(schema), kind)


def test_a_field_that_no_schema_has() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"has no field x\. It has: f0"):
        AvroDecoder(pa.struct([("x", pa.int32())]), given(record("int")))


def test_whole_bodies_of_other_types() -> None:
    bodies = pa.array([bytes.fromhex("020600")], pa.binary())
    decoder = AvroDecoder(pa.list_(pa.int32()), given({"type": "array", "items": "int"}))
    assert decoder.decode(bodies).values.to_pylist() == [[3]]
    nullable = AvroDecoder(pa.struct([("f0", pa.int32())]), given(["null", record("int")], NONE))
    found = nullable.decode(pa.array([b"\0", b"\x02\x04"], pa.binary()))
    assert found.values.to_pylist() == [None, {"f0": 2}]
    assert found.bad == [(0, "the body is null")]


def test_frames() -> None:
    frame = bytes.fromhex("0000000007")
    schema = record("string")
    framed, plain = frame + b"\x02a", b"\x02a"
    assert decode(schema, pa.string(), framed, plain, framing="auto") == (["a", "a"], [])
    # Empty texts, and a frame without anything.
    bodies = (b"\0", frame + b"\0", frame)
    assert decode(schema, pa.string(), *bodies, framing="auto")[0] == ["", "", None]
    values, [reason] = decode(schema, pa.string(), framed, plain, framing=ALWAYS)
    assert (values, reason[:29]) == (["a", None], "not Avro with a schema id: it")
    assert decode(schema, pa.string(), framed, plain, framing=NONE)[0] == [None, "a"]


def test_a_frame_that_may_be_none_is_bad() -> None:
    schema = record("string", "string")
    # Texts "" and "abc\2x\0", or id 0x0c616263 with "x" and "".
    body = bytes.fromhex("00 0c 616263 0278 00")
    values, [reason] = decode(schema, pa.string(), body, framing="auto")
    assert values == [None]
    assert "give value.schema.registry.framing=always or none" in reason
    assert decode(schema, pa.string(), body, framing=ALWAYS) == (["x"], [])
    assert decode(schema, pa.string(), body, framing=NONE) == ([""], [])


def test_schemas_by_id() -> None:
    old, new = record("string"), record("string", ["null", "int"])
    texts = ((1, json.dumps(old)), (2, json.dumps(new)))
    kind = pa.struct([("f0", pa.string()), ("f1", pa.int32())])
    decoder = AvroDecoder(kind, SchemaOptions("value.schema.file", texts))
    bodies = [b"\0\0\0\0\x01\x02a", b"\0\0\0\0\x02\x02b\x02\x06", b"\0\0\0\0\x03\x02c", b"\x02d"]
    found = decoder.decode(pa.array(bodies, pa.binary()))
    assert found.values.to_pylist()[:2] == [{"f0": "a", "f1": None}, {"f0": "b", "f1": 3}]
    assert [(row, reason[:22]) for row, reason in found.bad] == [
        (2, "no schema file has id "), (3, "not Avro with a schema")
    ]  # fmt: skip


KIND = pa.struct(
    [
        ("a", pa.list_(pa.struct([("x", pa.string()), ("y", pa.decimal128(10, 2))]))),
        ("m", pa.map_(pa.string(), TIMESTAMP)), ("b", pa.bool_()), ("i", pa.int32()),
        ("d", pa.date32()),
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@for_all(st.binary(max_size=40))
@example(b"\x02" * 40)
@example(b"\xff" * 40)
def test_random_bytes_are_a_row_or_a_bad_row(body: bytes) -> None:
    """What is accepted is what the bytes say: encoded again, and decoded, it is the same."""
    schema = given(schema_of(KIND), NONE)
    found = AvroDecoder(KIND, schema).decode(pa.array([body], pa.binary()))
    assert len(found.bad) == found.values.null_count
    if not found.bad:
        again = AvroEncoder(KIND, schema).encode(found.values)
        assert AvroDecoder(KIND, schema).decode(again).values.equals(found.values)


@settings(max_examples=200, deadline=None)
@for_all(st.binary(max_size=30), st.integers(0, 20))
def test_a_changed_body_is_never_an_error(tail: bytes, cut: int) -> None:
    """Mutations of a valid body get further into the decoder than random bytes."""
    row = {"a": [{"x": "é", "y": decimal.Decimal("1.50")}], "m": [("k", None)], "b": True}
    values = pa.array([row], KIND)
    [body] = AvroEncoder(KIND, given(schema_of(KIND))).encode(values).to_pylist()
    changed = pa.array([body[:cut] + tail, body[:cut] + tail + body[cut + len(tail) :]])
    for framing in ("auto", ALWAYS, NONE):
        found = AvroDecoder(KIND, given(schema_of(KIND), framing)).decode(changed)
        assert len(found.bad) == found.values.null_count
