"""Protobuf bodies to Arrow values.

If the compiled decoder (`native/`) is built, it decodes all bodies of a batch, and this one only
those that it refuses. This one parses bodies with Protobuf's own library and then takes the
selected fields out of the messages. A message that contains itself is read as deep as the columns
are.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from broker_core import errors
from pyspark_rmq.payloads.bad_records import Decoded, Undecodable, decoded_by_row
from pyspark_rmq.payloads.native.protobuf_plan import planned_protobuf
from pyspark_rmq.payloads.protobuf.messages import (
    TIMESTAMP_NAME,
    DecodeError,
    field_of,
    is_map,
    message_class,
    shown_type,
)
from pyspark_rmq.payloads.schema_options import SchemaOptions
from pyspark_rmq.payloads.spark_types import TIMESTAMP, sql_name

Convert = Callable[[Any], Any]


class ProtobufDecoder:
    """Decodes bodies to one type. Raises `InvalidArgument` if the message does not fit the type."""

    def __init__(self, kind: Any, given: SchemaOptions) -> None:
        self._kind = kind
        self._message = message_class(given)
        if not pa.types.is_struct(kind):
            raise errors.InvalidArgument(
                f"a Protobuf message is a STRUCT, not {sql_name(kind)}: name its fields"
            )
        self._convert = _messages(self._message.DESCRIPTOR, kind, "value")
        self._planned = planned_protobuf(kind, self._message.DESCRIPTOR)

    def decode(self, bodies: Any) -> Decoded:
        """The payload of each body."""
        if self._planned is None:
            return self.by_row(bodies)
        return self._planned.decode(bodies, self.by_row)

    def by_row(self, bodies: Any) -> Decoded:
        """The reference: body by body."""
        return decoded_by_row(bodies, self._kind, self._value)

    def _value(self, body: bytes) -> Any:
        message = self._message()
        try:
            message.ParseFromString(body)
            if not message.IsInitialized():
                missing = message.FindInitializationErrors()[0]
                raise Undecodable(f"the required field {missing} is missing")
            return self._convert(message)
        except DecodeError as error:
            raise Undecodable(f"not Protobuf: {error}") from None
        except UnicodeDecodeError:
            raise Undecodable("not Protobuf: a text is not UTF-8") from None


def _messages(descriptor: Any, kind: Any, path: str) -> Convert:
    steps = []
    for column in kind:
        field = field_of(descriptor, column.name, path)
        convert = _fields(field, column.type, f"{path}.{column.name}")
        steps.append((column.name, field.has_presence, convert))

    def of_message(message: Any) -> Any:
        return {
            name: None
            if has_presence and not message.HasField(name)
            else convert(getattr(message, name))
            for name, has_presence, convert in steps
        }

    return of_message


def _fields(field: Any, kind: Any, path: str) -> Convert:
    if is_map(field):
        key, item = field.message_type.fields
        if pa.types.is_map(kind):
            of_key = _singles(key, kind.key_type, f"a key of {path}")
            of_item = _singles(item, kind.item_type, f"{path}[]")
            if item.message_type:
                return lambda found: [(of_key(key), of_item(found[key])) for key in found]
            return lambda found: [(of_key(key), of_item(value)) for key, value in found.items()]
    elif field.is_repeated:
        if pa.types.is_list(kind):
            of_item = _singles(field, kind.value_type, f"{path}[]")
            return lambda found: [of_item(item) for item in found]
    elif not pa.types.is_map(kind) and not pa.types.is_list(kind):
        return _singles(field, kind, path)
    raise _unreadable(field, kind, path)


def _singles(field: Any, kind: Any, path: str) -> Convert:
    if field.message_type:
        if pa.types.is_struct(kind):
            return _messages(field.message_type, kind, path)
        if kind == TIMESTAMP and field.message_type.full_name == TIMESTAMP_NAME:
            return lambda value: _micros(value, path)
        raise _unreadable(field, kind, path)
    if field.enum_type:
        if kind == pa.string():
            return _enums(field.enum_type, path)
        raise _unreadable(field, kind, path)
    integers = (
        field.CPPTYPE_INT32,
        field.CPPTYPE_INT64,
        field.CPPTYPE_UINT32,
        field.CPPTYPE_UINT64,
    )
    if field.cpp_type in integers and (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return _integers(kind, path)
    accepted = {
        pa.bool_(): (field.TYPE_BOOL,),
        pa.float32(): (field.TYPE_FLOAT,),
        pa.float64(): (field.TYPE_DOUBLE, field.TYPE_FLOAT),
        pa.string(): (field.TYPE_STRING,),
        pa.binary(): (field.TYPE_BYTES,),
    }
    if field.type not in accepted.get(kind, ()):
        raise _unreadable(field, kind, path)
    return _text if kind == pa.string() else lambda value: value


def _text(value: Any) -> str:
    # The library rejects invalid texts of proto3, and returns those of proto2 as bytes.
    if isinstance(value, bytes):
        raise Undecodable("not Protobuf: a text is not UTF-8")
    return str(value)


def _integers(kind: Any, path: str) -> Convert:
    is_decimal = pa.types.is_decimal(kind)
    # The first number that is too large. A signed type has one more number below zero.
    end = 10 ** (kind.precision - kind.scale) if is_decimal else 1 << kind.bit_width - 1
    least = 1 - end if is_decimal else -end

    def of_integer(value: int) -> Any:
        if not least <= value < end:
            raise Undecodable(f"{path} is {value}, which is not {sql_name(kind)}")
        return decimal.Decimal(value) if is_decimal else value

    return of_integer


def _enums(enum: Any, path: str) -> Convert:
    names = {number: value.name for number, value in enum.values_by_number.items()}

    def of_enum(value: int) -> str:
        if value not in names:
            raise Undecodable(f"{path} is {value}, which is no value of {enum.full_name}")
        return str(names[value])

    return of_enum


def _micros(value: Any, path: str) -> int:
    micros: int = value.seconds * 1_000_000 + value.nanos // 1_000
    if not 0 <= value.nanos < 1_000_000_000 or not -(1 << 63) <= micros < 1 << 63:
        raise Undecodable(
            f"{path} is {value.seconds} s and {value.nanos} ns, which is not a valid time"
        )
    return micros


def _unreadable(field: Any, kind: Any, path: str) -> errors.InvalidArgument:
    word = "map" if is_map(field) else f"{'repeated ' * field.is_repeated}{shown_type(field)}"
    return errors.InvalidArgument(
        f"{path} is {sql_name(kind)}, and Protobuf's {word} is not read as it: see the table of"
        " types in docs/payloads.md"
    )
