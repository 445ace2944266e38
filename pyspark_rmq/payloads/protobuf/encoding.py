"""Arrow values to Protobuf bodies, which `bodies.py` reads back equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from broker_core import errors
from pyspark_rmq.payloads.json_encoding import python_rows
from pyspark_rmq.payloads.nested_arrays import with_numbers
from pyspark_rmq.payloads.protobuf.messages import (
    TIMESTAMP_NAME,
    field_of,
    is_map,
    message_class,
    shown_type,
)
from pyspark_rmq.payloads.schema_options import SchemaOptions
from pyspark_rmq.payloads.spark_types import TIMESTAMP, sql_name, usual_type

# Sets a field of a message to a value that is not null.
Put = Callable[[Any, Any], None]
_SECOND: Final = 1_000_000


class ProtobufEncoder:
    """Encodes values of one type. Raises `InvalidArgument` if the message does not fit the type."""

    def __init__(self, kind: Any, given: SchemaOptions) -> None:
        self._message = message_class(given)
        if not pa.types.is_struct(kind):
            raise errors.InvalidArgument(
                f"a Protobuf message is made of a STRUCT, not of {sql_name(usual_type(kind))}"
            )
        self._fill = _messages(self._message.DESCRIPTOR, usual_type(kind), "value")

    def encode(self, values: Any) -> Any:
        """A binary array with the encoding of each value of an array without nulls."""
        found = []
        for row in python_rows(with_numbers(values), "Protobuf"):
            message = self._message()
            self._fill(message, row)
            # Raised here by a field of proto2 that no column has.
            if not message.IsInitialized():
                missing = message.FindInitializationErrors()[0]
                raise errors.InvalidArgument(f"the required field {missing} is null in a row")
            # Maps in the order of their keys: a batch that is written again is the same.
            found.append(message.SerializeToString(deterministic=True))
        return pa.array(found, pa.binary())


def _messages(descriptor: Any, kind: Any, path: str) -> Put:
    puts, choices = [], Counter[str]()
    oneofs: dict[str, str] = {}
    for column in kind:
        field = field_of(descriptor, column.name, path)
        puts.append((column.name, _fields(field, column.type, f"{path}.{column.name}")))
        if field.containing_oneof:
            oneofs[column.name] = field.containing_oneof.name
            choices[field.containing_oneof.name] += 1
    shared = {name: oneof for name, oneof in oneofs.items() if choices[oneof] > 1}

    def fill(message: Any, row: Any) -> None:
        # It exists, even if all fields are null.
        message.SetInParent()
        taken = set()
        for name, put in puts:
            if row[name] is None:
                continue
            if name in shared:
                if shared[name] in taken:
                    raise errors.InvalidArgument(
                        f"{path} has two fields of the oneof {shared[name]} in a row"
                    )
                taken.add(shared[name])
            put(message, row[name])

    return fill


def _fields(field: Any, kind: Any, path: str) -> Put:
    name = field.name
    if is_map(field):
        key, item = field.message_type.fields
        if pa.types.is_map(kind):
            of_key = _scalars(key, kind.key_type, f"a key of {path}")
            return _maps(item, kind.item_type, name, f"{path}[]", of_key)
    elif field.is_repeated:
        if pa.types.is_list(kind):
            return _lists(field, kind.value_type, name, f"{path}[]")
    elif field.message_type:
        fill = _inner(field, kind, path)
        return lambda message, value: fill(getattr(message, name), value)
    elif not pa.types.is_nested(kind):
        convert = _scalars(field, kind, path)
        return lambda message, value: setattr(message, name, convert(value))
    raise _unwritable(field, kind, path)


def _inner(field: Any, kind: Any, path: str) -> Put:
    """Fills a message of the field."""
    if pa.types.is_struct(kind):
        return _messages(field.message_type, kind, path)
    if kind == TIMESTAMP and field.message_type.full_name == TIMESTAMP_NAME:
        return _put_time
    raise _unwritable(field, kind, path)


def _put_time(message: Any, micros: int) -> None:
    message.SetInParent()
    message.seconds, rest = divmod(micros, _SECOND)
    message.nanos = rest * 1_000


def _lists(field: Any, kind: Any, name: str, path: str) -> Put:
    if field.message_type:
        fill = _inner(field, kind, path)

        def put_messages(message: Any, value: Any) -> None:
            for item in value:
                fill(getattr(message, name).add(), _present(item, path))

        return put_messages
    convert = _scalars(field, kind, path)
    return lambda message, value: getattr(message, name).extend(
        [convert(_present(item, path)) for item in value]
    )


def _maps(item: Any, kind: Any, name: str, path: str, of_key: Callable[[Any], Any]) -> Put:
    if item.message_type:
        fill = _inner(item, kind, path)

        def put_messages(message: Any, value: Any) -> None:
            for key, one in value.items():
                fill(getattr(message, name)[of_key(key)], _present(one, path))

        return put_messages
    convert = _scalars(item, kind, path)

    def put(message: Any, value: Any) -> None:
        for key, one in value.items():
            getattr(message, name)[of_key(key)] = convert(_present(one, path))

    return put


def _present(value: Any, path: str) -> Any:
    if value is None:
        raise errors.InvalidArgument(f"{path} is null in a row, and Protobuf has no null there")
    return value


def _scalars(field: Any, kind: Any, path: str) -> Callable[[Any], Any]:
    if field.enum_type:
        if kind == pa.string():
            return _enums(field.enum_type, path)
        raise _unwritable(field, kind, path)
    ends = {
        field.CPPTYPE_INT32: (-(1 << 31), 1 << 31),
        field.CPPTYPE_UINT32: (0, 1 << 32),
        field.CPPTYPE_INT64: (-(1 << 63), 1 << 63),
        field.CPPTYPE_UINT64: (0, 1 << 64),
    }
    is_whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if field.cpp_type in ends and is_whole:
        return _integers(*ends[field.cpp_type], path, shown_type(field))
    accepted = {
        pa.bool_(): (field.TYPE_BOOL,),
        pa.float32(): (field.TYPE_FLOAT, field.TYPE_DOUBLE),
        pa.float64(): (field.TYPE_DOUBLE,),
        pa.string(): (field.TYPE_STRING,),
        pa.binary(): (field.TYPE_BYTES,),
    }
    if field.type not in accepted.get(kind, ()):
        raise _unwritable(field, kind, path)
    return lambda value: value


def _integers(least: int, end: int, path: str, name: str) -> Callable[[Any], int]:
    def of_integer(value: Any) -> int:
        if not least <= value < end:
            raise errors.InvalidArgument(f"{path} is {value}, which is not {name}")
        return int(value)

    return of_integer


def _enums(enum: Any, path: str) -> Callable[[Any], int]:
    numbers = {name: value.number for name, value in enum.values_by_name.items()}

    def of_enum(value: str) -> int:
        if value not in numbers:
            raise errors.InvalidArgument(f"{path} is {value!r:.80}, no value of {enum.full_name}")
        return int(numbers[value])

    return of_enum


def _unwritable(field: Any, kind: Any, path: str) -> errors.InvalidArgument:
    word = "map" if is_map(field) else f"{'repeated ' * field.is_repeated}{shown_type(field)}"
    return errors.InvalidArgument(
        f"{path} is {sql_name(kind)}, and is not written as Protobuf's {word}: see the table of"
        " types in docs/payloads.md"
    )
