"""Avro schemas of Arrow types, for tests that write and read values."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pyspark_rmq.payloads.schema_options import AUTO, SchemaOptions
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ

_LEAVES: dict[Any, Any] = {
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): {"type": "int", "logicalType": "date"},
    TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    TIMESTAMP_NTZ: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def given(schema: Any, framing: str = AUTO) -> SchemaOptions:
    return SchemaOptions("value.schema", ((None, json.dumps(schema)),), framing)


def schema_of(kind: Any, numbers: Iterator[int] | None = None) -> Any:
    """A schema in which everything inside may be null."""
    numbers = numbers or itertools.count()
    if pa.types.is_struct(kind):
        fields = [
            {"name": field.name, "type": ["null", schema_of(field.type, numbers)]} for field in kind
        ]
        return {"type": "record", "name": f"R{next(numbers)}", "fields": fields}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", schema_of(kind.value_type, numbers)]}
    if pa.types.is_map(kind):
        return {"type": "map", "values": [schema_of(kind.item_type, numbers), "null"]}
    if pa.types.is_decimal(kind):
        decimal = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", **decimal}
    return _LEAVES[kind]
