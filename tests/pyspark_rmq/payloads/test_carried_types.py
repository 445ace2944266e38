"""The table of types in docs/payloads.md: what each format carries, and what it refuses."""

from __future__ import annotations

import datetime
import decimal
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from broker_core import errors
from pyspark_rmq.payloads.avro.bodies import AvroDecoder
from pyspark_rmq.payloads.avro.encoding import AvroEncoder
from pyspark_rmq.payloads.json_columns import JsonDecoder
from pyspark_rmq.payloads.json_encoding import encode_json
from pyspark_rmq.payloads.msgpack_bodies import MsgpackDecoder, encode_msgpack
from pyspark_rmq.payloads.protobuf.bodies import ProtobufDecoder
from pyspark_rmq.payloads.protobuf.encoding import ProtobufEncoder
from pyspark_rmq.payloads.read_columns import refuse_keys
from pyspark_rmq.payloads.reader_options.time_texts import TimeTexts
from pyspark_rmq.payloads.schema_options import NONE, SchemaOptions
from pyspark_rmq.payloads.spark_types import arrow_type, writable_type
from tests.pyspark_rmq.payloads.avro import typed_schemas

PAGE = Path(__file__).parents[3] / "docs" / "payloads.md"
FORMATS = ("json", "msgpack", "avro", "protobuf")
_UTC = datetime.timezone.utc
_INNER: dict[str, Any] = {"type": "struct", "fields": [
    {"name": "a", "type": "string", "nullable": True, "metadata": {}}]}  # fmt: skip


def array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def mapped(kind: Any, key: str = "string") -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": kind, "valueContainsNull": True}


_INT_MAPS = {**_INNER, "fields": [{**_INNER["fields"][0], "type": mapped("long", "integer")}]}
# The row of the table -> (type as Spark's JSON, values).
VALUES: dict[str, list[tuple[Any, list[Any]]]] = {
    "STRUCT, ARRAY, `MAP<STRING, …>`, nested": [
        (_INNER, [{"a": "x"}]),
        (array("string"), [["x", ""], []]),
        (mapped("long"), [[("k", 1)], []]),
        ({"type": "struct", "fields": [
            {"name": "a", "type": array(_INNER), "nullable": True, "metadata": {}}]},
         [{"a": [{"a": "y"}]}]),
    ],
    "null in a STRUCT": [(_INNER, [None])],
    "null in an ARRAY, as value of a MAP": [
        (array("string"), [["x", None]]), (mapped("long"), [[("k", None)]]),
    ],
    "STRING, BINARY, BOOLEAN": [
        ("string", ["", "é\u0000\U0001f600"]), ("binary", [b"", b"\0\xff"]),
        ("boolean", [True, False]),
    ],
    "TINYINT, SMALLINT, INT, BIGINT": [
        (name, [-(1 << bits - 1), 0, (1 << bits - 1) - 1])
        for name, bits in (("byte", 8), ("short", 16), ("integer", 32), ("long", 64))
    ],
    "FLOAT, DOUBLE, with NaN and infinities": [
        (name, [0.5, -0.0, float("nan"), float("inf"), float("-inf")])
        for name in ("float", "double")
    ],
    "DECIMAL of scale 0, up to 20 digits": [
        ("decimal(20,0)", [decimal.Decimal((1 << 64) - 1), decimal.Decimal(0)]),
    ],
    "DECIMAL(38,x)": [
        ("decimal(38,10)", [decimal.Decimal("-" + "9" * 28 + "." + "9" * 10)]),
        ("decimal(38,38)", [decimal.Decimal("0." + "9" * 38)]),
        ("decimal(38,0)", [decimal.Decimal("9" * 38)]),
    ],
    "DATE": [("date", [datetime.date.min, datetime.date(1969, 12, 31), datetime.date.max])],
    "TIMESTAMP": [
        ("timestamp", [
            datetime.datetime(1, 1, 1, tzinfo=_UTC),
            datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=_UTC),
        ]),
    ],
    "TIMESTAMP_NTZ": [
        ("timestamp_ntz", [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59)]),
    ],
    "MAP with keys that are BOOLEAN or integers": [
        # One key each, because Protobuf's library gives them in an order of its own.
        (mapped("string", name), [[(-(1 << bits - 1), "a")], [((1 << bits - 1) - 1, "")], []])
        for name, bits in (("byte", 8), ("short", 16), ("integer", 32), ("long", 64))
    ] + [
        (mapped(_INNER, "boolean"), [[(True, {"a": "x"})], [(False, {"a": "y"})], []]),
        (array(_INT_MAPS), [[{"a": [(1, 2)]}, {"a": []}]]),
    ],
    "intervals, TIME, VOID, MAP with other keys": [
        (kind, [])
        for kind in (
            "interval day to second", "interval year to month", "interval", "time(6)", "void",
            mapped("long", "double"), mapped("string", "date"), mapped("long", "binary"),
        )
    ],
}  # fmt: skip
_ELSEWHERE = "VARIANT"  # test_spark_variants.py: needs Spark
_PROTOBUF = {
    "string": "string", "binary": "bytes", "bool": "bool", "int8": "int32", "int16": "int32",
    "int32": "int32", "int64": "int64", "float": "float", "double": "double",
    "decimal128(20, 0)": "uint64",
}  # fmt: skip


def table() -> dict[str, dict[str, bool]]:
    """Row -> format -> whether it is carried."""
    text = PAGE.read_text().split("## Types that formats carry")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    found = {}
    for line in lines[2:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found[name] = {
            each: cell.startswith("yes") for each, cell in zip(FORMATS, cells, strict=True)
        }
    return found


def protobuf_schema(kind: Any) -> SchemaOptions:
    """A message for a STRUCT; the nearest scalar where Protobuf has no such type."""
    file = descriptor_pb2.FileDescriptorProto(
        name="m.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    numbers = itertools.count()
    _add_message(file.message_type.add(name="M"), kind, ".M", numbers)
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    files = descriptor_pb2.FileDescriptorSet(file=[timestamp, file])
    return SchemaOptions("value.schema.file", descriptors=files.SerializeToString(), message="M")


def _add_message(message: Any, kind: Any, path: str, numbers: Iterator[int]) -> None:
    for number, one in enumerate(kind, 1):
        field, inner = message.field.add(name=one.name, number=number, label=1), one.type
        if pa.types.is_list(inner):
            field.label, inner = 3, inner.value_type
        elif pa.types.is_map(inner):
            name = "".join(word.title() for word in one.name.split("_")) + "Entry"
            entry = message.nested_type.add(name=name)
            entry.options.map_entry = True
            pair = pa.struct({"key": inner.key_type, "value": inner.item_type})
            _add_message(entry, pair, f"{path}.{name}", numbers)
            field.label, field.type, field.type_name = 3, 11, f"{path}.{name}"
            continue
        if pa.types.is_struct(inner):
            name = f"N{next(numbers)}"
            _add_message(message.nested_type.add(name=name), inner, f"{path}.{name}", numbers)
            field.type, field.type_name = 11, f"{path}.{name}"
        elif pa.types.is_timestamp(inner):
            field.type, field.type_name = 11, ".google.protobuf.Timestamp"
        else:
            word = _PROTOBUF.get(str(inner), "string")
            field.type = getattr(field, f"TYPE_{word.upper()}")


def carried(body_format: str, values: Any) -> Any:
    """What is read back."""
    refuse_keys("x", values.type, body_format)
    if body_format == "json":
        return JsonDecoder(values.type, TimeTexts("UTC")).decode(encode_json(values))
    if body_format == "msgpack":
        return MsgpackDecoder(values.type).decode(encode_msgpack(values))
    if body_format == "avro":
        given = typed_schemas.given(typed_schemas.schema_of(values.type), NONE)
        return AvroDecoder(values.type, given).decode(
            AvroEncoder(values.type, given).encode(values)
        )
    given = protobuf_schema(values.type)
    encoded = ProtobufEncoder(values.type, given).encode(values)
    return ProtobufDecoder(values.type, given).decode(encoded)


@pytest.mark.parametrize("body_format", FORMATS)
@pytest.mark.parametrize("row", VALUES)
def test_the_table_is_true(row: str, body_format: str) -> None:
    is_carried = table()[row][body_format]
    for kind, values in VALUES[row]:
        if not values:
            for readable in (arrow_type, writable_type):
                with pytest.raises(errors.InvalidArgument, match=r"value\.x"):
                    readable(kind, "value.x")
            assert not is_carried
            continue
        rows = pa.array(
            [{"x": value} for value in values], pa.struct([("x", arrow_type(kind, "value.x"))])
        )
        if not is_carried:
            with pytest.raises(errors.InvalidArgument, match=r"\bx\b"):
                carried(body_format, rows)
            continue
        decoded = carried(body_format, rows)
        assert not decoded.bad
        assert repr(decoded.values.to_pylist()) == repr(rows.to_pylist())


def test_the_table_is_complete() -> None:
    assert set(table()) == {*VALUES, _ELSEWHERE}
