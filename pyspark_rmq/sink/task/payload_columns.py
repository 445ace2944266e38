"""Columns of a writer with a `valueFormat`: which of them are encoded as the body.

columns of the message (key, tags, topic, …) ──► the message
column `value`, or without it all other columns ──► the body
keyColumn, tagsColumn, … ──► both
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from broker_core import errors
from pyspark_rmq.payloads import formats
from pyspark_rmq.payloads.avro.encoding import AvroEncoder
from pyspark_rmq.payloads.read_columns import SchemaField, refuse_keys, refuse_variant
from pyspark_rmq.payloads.registry.frames import framed
from pyspark_rmq.payloads.spark_types import has_variant, writable_type
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.sink_columns import Place, SinkColumns, assembled, message_names, placed
from pyspark_rmq.source.rows.property_map import SYSTEM_PROPERTIES

# Types that become keys, tags and properties as texts.
_AS_TEXT: Final = ("string", "binary", "boolean", "byte", "short", "integer", "long", "date")
_SEPARATORS: Final = re.compile("[\x01\x02]")


class Encoder(Protocol):
    """Encodes values of one type."""

    def encode(self, values: Any) -> Any:
        """A binary array with the encoding of each value of an array without nulls."""


def encoder_of(kind: Any, options: SinkOptions) -> Encoder:
    """For a format with a schema. Raises `InvalidArgument` if the schema does not fit the type."""
    given = options.value_schema
    number = given.registry.schema_id
    if options.value_format == formats.AVRO:
        avro = AvroEncoder(kind, given)
        return avro if number is None else FramedEncoder(avro, number)
    # Its package is optional.
    from pyspark_rmq.payloads.protobuf.encoding import ProtobufEncoder
    from pyspark_rmq.payloads.protobuf.messages import message_path

    protobuf = ProtobufEncoder(kind, given)
    return protobuf if number is None else FramedEncoder(protobuf, number, message_path(given))


class FramedEncoder:
    """Writes the id of a schema before each body."""

    def __init__(self, encoder: Encoder, schema_id: int, path: Sequence[int] | None = None) -> None:
        self._encoder = encoder
        self._schema_id = schema_id
        self._path = path

    def encode(self, values: Any) -> Any:
        """A binary array with the encoding of each value of an array without nulls."""
        return framed(self._encoder.encode(values), self._schema_id, self._path)


def find_payload_columns(fields: Sequence[SchemaField], options: SinkOptions) -> SinkColumns:
    """The columns of a schema. Raises `InvalidArgument` for those that cannot be written."""
    message: list[tuple[int, SchemaField]] = []
    payload: list[tuple[int, SchemaField]] = []
    names = message_names(options)
    for index, field in enumerate(fields):
        (message if field.name.lower() in names else payload).append((index, field))
    value = next((pair for pair in message if pair[1].name.lower() == "value"), None)
    at = placed(((i, f.name, f.simple_type) for i, f in message if (i, f) != value), options)
    _refuse_twice([field.name for _, field in payload])
    kinds = [(field.name, writable_type(field.json_type, field.name)) for _, field in payload]
    for name, kind in kinds:
        if has_variant(kind):
            refuse_variant(name, options.value_format)
        refuse_keys(name, kind, options.value_format)
    candidates: dict[str, tuple[Place, Any]] = {f.name: (i, f.json_type) for i, f in payload}
    if value is not None:
        at["value"] = value[0]
        candidates |= _fields_of(*value, options.value_format)
    for role, name in options.column_roles.items():
        if role in at:
            raise errors.InvalidArgument(
                f"there are a column {role} and an option {role}Column: leave one of them out"
            )
        at[role] = _found(f"{role}Column", name, candidates)
    properties = tuple(
        (_property_name(name), _found("propertyColumns", name, candidates))
        for name in options.property_columns
    )
    encoded = _encoded(value, payload, options)
    if options.value_schema.option:
        # Only to check it, before there are tasks.
        kind = pa.struct(kinds) if value is None else writable_type(value[1].json_type, "value")
        encoder_of(kind, options)
    return assembled(at, options)._replace(payload=encoded, property_columns=properties)


def _encoded(
    value: tuple[int, SchemaField] | None,
    payload: Sequence[tuple[int, SchemaField]],
    options: SinkOptions,
) -> tuple[int, ...]:
    if value is None:
        if not payload:
            raise errors.InvalidArgument(
                f"valueFormat={options.value_format} has no column to encode: give a column value"
                " or columns of other names than those of a message"
            )
        return tuple(index for index, _ in payload)
    used = {*options.column_roles.values(), *options.property_columns}
    unused = [field.name for _, field in payload if field.name not in used]
    if unused:
        raise errors.InvalidArgument(
            f"columns {', '.join(unused)} would not be written, because there is a column value:"
            " put them into it, or leave value out"
        )
    return ()


def _fields_of(index: int, field: SchemaField, value_format: str) -> dict[str, tuple[Place, Any]]:
    """Fields of the column `value`, which must be nested."""
    kind = field.json_type
    if isinstance(kind, str) and kind != "variant":
        raise errors.InvalidArgument(
            f"column value is {field.simple_type}, and valueFormat={value_format} encodes a STRUCT,"
            " MAP or ARRAY: leave valueFormat out to write it as it is"
        )
    written = writable_type(kind, field.name)
    if has_variant(written):
        refuse_variant(field.name, value_format)
    refuse_keys(field.name, written, value_format)
    if isinstance(kind, str) or kind["type"] != "struct":
        return {}
    return {one["name"]: ((index, n), one["type"]) for n, one in enumerate(kind["fields"])}


def _found(option: str, name: str, candidates: Mapping[str, tuple[Place, Any]]) -> Place:
    if name not in candidates:
        raise errors.InvalidArgument(
            f"option {option}={name}: there is no such column to encode. There are:"
            f" {', '.join(candidates) or 'none'}"
        )
    place, kind = candidates[name]
    if kind not in _AS_TEXT and not str(kind).startswith("decimal("):
        raise errors.InvalidArgument(
            f"option {option}={name}: its type does not become a text; cast it to STRING"
        )
    return place


def _property_name(name: str) -> str:
    if name in SYSTEM_PROPERTIES:
        raise errors.InvalidArgument(
            f"option propertyColumns has {name}, which RocketMQ uses itself"
        )
    if _SEPARATORS.search(name):
        raise errors.InvalidArgument(
            "option propertyColumns has a name with a character 0x01 or 0x02, which separate"
            " properties in a message"
        )
    return name


def _refuse_twice(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise errors.InvalidArgument(f"duplicate columns: {', '.join(twice)}")
