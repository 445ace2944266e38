"""The Spark type that a reader without `.schema(…)` has for an Avro schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_core import errors
from pyspark_rmq.payloads.avro.schemas import AvroType, parse_schema
from pyspark_rmq.payloads.inference.described import (
    DECIMAL_DIGITS_MAX,
    array_of,
    fields_of,
    map_of,
    struct_of,
    undescribed,
)
from pyspark_rmq.payloads.schema_options import SchemaOptions

_PLAIN: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_LOGICAL: Final[Mapping[str, str]] = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}


def avro_column(given: SchemaOptions) -> Any:
    """The type of the column `value`. Several schemas have the fields of all of them.

    Raises `InvalidArgument` for types that no column can have.
    """
    found: Any = None
    for number, text in given.texts:
        one = described(parse_schema(text, given.named(number)), "value")
        if isinstance(one, str):
            raise undescribed("value", f"Avro's {one} and no record, array or map")
        found = one if found is None else _joined(found, one, given.named(number))
    return found


def described(schema: AvroType, path: str) -> Any:
    """The type of a schema."""
    if schema.kind == "union":
        return _branch(schema, path)
    if schema.kind == "record":
        if not schema.fields:
            raise undescribed(path, f"record {schema.name} without fields")
        return struct_of((name, described(one, f"{path}.{name}")) for name, one in schema.fields)
    if schema.kind == "array":
        return array_of(described(schema.inner[0], f"{path}[]"))
    if schema.kind == "map":
        return map_of(described(schema.inner[0], f"{path}[]"))
    if schema.logical == "decimal":
        if schema.precision > DECIMAL_DIGITS_MAX:
            raise undescribed(path, f"Avro's {schema.shown}")
        return f"decimal({schema.precision},{schema.scale})"
    kind = _LOGICAL.get(schema.logical) or _PLAIN.get(schema.kind)
    if kind is None:
        raise undescribed(path, f"Avro's {schema.shown}")
    return kind


def _branch(schema: AvroType, path: str) -> Any:
    kinds = [described(one, path) for one in schema.inner if one.kind != "null"]
    if len(kinds) == 1:
        return kinds[0]
    # As in `from_avro`, these types widen to one.
    for accepted in (("integer", "long"), ("float", "double")):
        if kinds and all(kind in accepted for kind in kinds):
            return accepted[1]
    raise undescribed(path, f"Avro's {schema.shown}")


def _joined(one: Any, other: Any, option: str) -> Any:
    """A record with the fields of both. Raises `InvalidArgument`."""
    fields, more = fields_of(one), fields_of(other)
    if fields is None or more is None:
        raise errors.InvalidArgument(
            f"option {option}: the schemas are not all records: give .schema(…)"
        )
    for name, kind in more.items():
        if fields.setdefault(name, kind) != kind:
            raise errors.InvalidArgument(
                f"option {option}: field {name} has another type than in an earlier schema: give"
                " .schema(…) with the type to read it as"
            )
    return struct_of(fields.items())
