"""Columns of readers that give no schema, from Avro schemas."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from broker_core import errors
from pyspark_rmq.payloads.avro.bodies import AvroDecoder
from pyspark_rmq.payloads.avro.columns import avro_column
from pyspark_rmq.payloads.inference.described import ddl_of
from pyspark_rmq.payloads.schema_options import SchemaOptions
from pyspark_rmq.payloads.spark_types import arrow_type


def record(**fields: Any) -> Any:
    found = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "fields": found}


def given(*schemas: Any) -> SchemaOptions:
    numbers = [None] if len(schemas) == 1 else range(1, len(schemas) + 1)
    texts = zip(numbers, map(json.dumps, schemas), strict=True)
    return SchemaOptions("value.schema.file", tuple(texts))


def logical(kind: str, name: str, **more: Any) -> Any:
    return {"type": kind, "logicalType": name, **more}


ALL = record(
    b="boolean", i="int", l="long", f="float", d="double", raw="bytes", s="string",
    e={"type": "enum", "name": "E", "symbols": ["A"]},
    x={"type": "fixed", "name": "F", "size": 2}, day=logical("int", "date"),
    at=logical("long", "timestamp-millis"), us=["null", logical("long", "timestamp-micros")],
    local=logical("long", "local-timestamp-micros"),
    p=logical("bytes", "decimal", precision=10, scale=2),
    list={"type": "array", "items": ["null", "string"]}, map={"type": "map", "values": "int"},
    n=["int", "null", "long"],
)  # fmt: skip


def test_every_type() -> None:
    found = avro_column(given(ALL))
    assert ddl_of(found) == (
        "struct<`b`: boolean, `i`: integer, `l`: long, `f`: float, `d`: double, `raw`: binary,"
        " `s`: string, `e`: string, `x`: binary, `day`: date, `at`: timestamp, `us`: timestamp,"
        " `local`: timestamp_ntz, `p`: decimal(10,2), `list`: array<string>,"
        " `map`: map<string, integer>, `n`: long>"
    )
    # What is described can be read.
    AvroDecoder(arrow_type(found, "value"), given(ALL)).decode(pa.array([b""], pa.binary()))


def test_schemas_by_id_have_the_fields_of_all() -> None:
    found = avro_column(given(record(a="int"), record(b="string", a=["null", "int"])))
    assert ddl_of(found) == "struct<`a`: integer, `b`: string>"
    with pytest.raises(errors.InvalidArgument, match=r"2\.avsc.*: field a has another type"):
        avro_column(given(record(a="int"), record(a="string")))
    with pytest.raises(errors.InvalidArgument, match="not all records"):
        avro_column(given(record(a="int"), {"type": "map", "values": "int"}))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (record(a=["int", "string"]), r"value\.a is Avro's \[int, string\]"),
        (record(a="null"), r"value\.a is Avro's null"),
        (record(a=record()), r"value\.a is record R without fields"),
        (record(a=logical("bytes", "decimal", precision=39, scale=0)), r"decimal\(39,0\)"),
        ("int", "value is Avro's integer and no record"),
    ],
)
def test_types_without_a_column(schema: Any, text: str) -> None:
    if isinstance(schema, dict):
        schema = {**schema, "name": "Outer"}
    with pytest.raises(errors.InvalidArgument, match=rf"{text}.*give \.schema"):
        avro_column(given(schema))
