"""Avro: what the sink writes the source reads back equal, and what cannot be written."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given as for_all
from hypothesis import settings

from broker_core import errors
from pyspark_rmq.payloads.avro.bodies import AvroDecoder
from pyspark_rmq.payloads.avro.encoding import AvroEncoder
from pyspark_rmq.payloads.schema_options import NONE
from tests.pyspark_rmq.payloads.avro.typed_schemas import given, schema_of
from tests.pyspark_rmq.payloads.typed_values import arrays_of_structs

MONEY = {"logicalType": "decimal", "precision": 4, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def record(**types: Any) -> Any:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return {"type": "record", "name": "R", "fields": fields}


def encode(schema: Any, kind: Any, value: Any) -> Any:
    array = pa.array([{"a": value}], pa.struct([("a", kind)]))
    return AvroEncoder(array.type, given(record(a=schema))).encode(array).to_pylist()[0]


@settings(max_examples=100, deadline=None)
@for_all(arrays_of_structs())
def test_structs_come_back(array: Any) -> None:
    schema = given(schema_of(array.type), NONE)
    decoded = AvroDecoder(array.type, schema).decode(AvroEncoder(array.type, schema).encode(array))
    assert not decoded.bad
    assert repr(decoded.values.to_pylist()) == repr(array.to_pylist())


@pytest.mark.parametrize(
    ("schema", "kind", "value", "body"),
    [
        ("long", pa.int32(), -64, "7f"), ("long", pa.int64(), 64, "8001"),
        ("long", pa.int64(), -(1 << 63), "ffffffffffffffffff01"),
        ("double", pa.float32(), 1.5, "000000000000f83f"),
        (["null", "string"], pa.string(), "a", "020261"),
        (["string", "null"], pa.string(), None, "02"),
        (ENUM, pa.string(), "B", "02"), (FIXED, pa.binary(), b"\1\2", "0102"),
        ({**FIXED, **MONEY}, pa.decimal128(3, 1), decimal.Decimal("-2.0"), "ff38"),
        ({"type": "bytes", **MONEY}, pa.decimal128(4, 2), decimal.Decimal("-1.28"), "0280"),
        ({"type": "bytes", **MONEY}, pa.decimal128(4, 2), decimal.Decimal("1.28"), "040080"),
        ({"type": "array", "items": "long"}, pa.list_(pa.int64()), [3, 27], "04063600"),
        ({"type": "array", "items": "long"}, pa.list_(pa.int64()), [], "00"),
        # Cut to milliseconds, as Spark does.
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "Asia/Tokyo"),
         datetime.datetime(1970, 1, 1, 0, 0, 0, 1_999, datetime.timezone.utc), "02"),
        ("string", pa.large_string(), "a", "0261"), ("bytes", pa.large_binary(), b"a", "0261"),
    ],
)  # fmt: skip
def test_golden_bytes(schema: Any, kind: Any, value: Any, body: str) -> None:
    assert encode(schema, kind, value).hex() == body


def test_a_field_without_a_column_is_null() -> None:
    array = pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    schema = record(z=["null", "string"], a="int", y=["int", "null"], x="null")
    assert AvroEncoder(array.type, given(schema)).encode(array).to_pylist() == [b"\x00\x02\x02"]


@pytest.mark.parametrize(
    ("schema", "kind", "value", "text"),
    [
        ("int", pa.int32(), None, "value.a is null in a row"),
        (ENUM, pa.string(), "C", "value.a is 'C', no symbol of E"),
        (FIXED, pa.binary(), b"abc", "has 3 bytes, and F has 2"),
        ({"type": "bytes", **MONEY}, pa.decimal128(9, 2), decimal.Decimal("100.00"), "too large"),
        ({"type": "fixed", "name": "G", "size": 1, **MONEY}, pa.decimal128(4, 2),
         decimal.Decimal("1.28"), "too large"),
    ],
)  # fmt: skip
def test_values_that_are_refused(schema: Any, kind: Any, value: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        encode(schema, kind, value)


@pytest.mark.parametrize(
    ("schema", "kind", "text"),
    [
        (record(a="int"), pa.int64(), "value.a is BIGINT, and is not written as Avro's int"),
        (record(a="float"), pa.float64(), "is not written as Avro's float"),
        (record(a="long"), pa.timestamp("us", "UTC"), "is not written as Avro's long"),
        (record(a={"type": "bytes", **MONEY}), pa.decimal128(9, 3), r"decimal\(4,2\)"),
        (record(a={"type": "long", "logicalType": "timestamp-micros"}), pa.int64(), "not written"),
        (record(a=["int", "string"]), pa.int32(), "only unions of null and one type"),
        (record(b="int"), pa.int32(), "has no field value.a. It has: b"),
        (record(a="int", b="int"), pa.int32(), "has a field b, which may not be null"),
    ],
)
def test_types_that_do_not_fit(schema: Any, kind: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        AvroEncoder(pa.struct([("a", kind)]), given(schema))
