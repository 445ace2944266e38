"""The Spark type that a reader without `.schema(…)` has for a Protobuf message."""

from __future__ import annotations

from typing import Any

from pyspark_rmq.payloads.inference.described import array_of, map_of, struct_of, undescribed
from pyspark_rmq.payloads.protobuf.messages import (
    TIMESTAMP_NAME,
    is_map,
    message_class,
    shown_type,
)
from pyspark_rmq.payloads.schema_options import SchemaOptions


def protobuf_column(given: SchemaOptions) -> Any:
    """The type of the column `value`. Raises `InvalidArgument` for types without a column."""
    return _message(message_class(given).DESCRIPTOR, "value", ())


def _message(descriptor: Any, path: str, above: tuple[str, ...]) -> Any:
    name = descriptor.full_name
    if name in above:
        raise undescribed(path, f"message {name}, which contains itself")
    if not descriptor.fields:
        raise undescribed(path, f"message {name} without fields")
    return struct_of(
        (field.name, _field(field, f"{path}.{field.name}", (*above, name)))
        for field in descriptor.fields
    )


def _field(field: Any, path: str, above: tuple[str, ...]) -> Any:
    if is_map(field):
        key, item = field.message_type.fields
        of_key = _single(key, path, above)
        if of_key.startswith("decimal"):
            raise undescribed(path, f"a map with keys of type {shown_type(key)}")
        return map_of(_single(item, f"{path}[]", above), of_key)
    if field.is_repeated:
        return array_of(_single(field, f"{path}[]", above))
    return _single(field, path, above)


def _single(field: Any, path: str, above: tuple[str, ...]) -> Any:
    if field.message_type:
        if field.message_type.full_name == TIMESTAMP_NAME:
            return "timestamp"
        return _message(field.message_type, path, above)
    if field.enum_type:
        return "string"
    return {
        field.CPPTYPE_INT32: "integer",
        field.CPPTYPE_INT64: "long",
        # The smallest type that holds all of them.
        field.CPPTYPE_UINT32: "long",
        field.CPPTYPE_UINT64: "decimal(20,0)",
        field.CPPTYPE_FLOAT: "float",
        field.CPPTYPE_DOUBLE: "double",
        field.CPPTYPE_BOOL: "boolean",
        field.CPPTYPE_STRING: "binary" if field.type == field.TYPE_BYTES else "string",
    }[field.cpp_type]
