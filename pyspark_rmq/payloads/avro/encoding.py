"""Arrow values to Avro bodies, which `bodies.py` reads back equal."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from broker_core import errors
from pyspark_rmq.payloads.avro.bodies import TIMES
from pyspark_rmq.payloads.avro.schemas import AvroType, parse_schema
from pyspark_rmq.payloads.json_encoding import python_rows
from pyspark_rmq.payloads.nested_arrays import with_numbers
from pyspark_rmq.payloads.schema_options import SchemaOptions
from pyspark_rmq.payloads.spark_types import sql_name, usual_type

Write = Callable[[Any, bytearray], None]

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_EXACT: Final = decimal.Context(prec=200)


class AvroEncoder:
    """Encodes values of one type. Raises `InvalidArgument` if the schema does not fit the type."""

    def __init__(self, kind: Any, given: SchemaOptions) -> None:
        [(number, text)] = given.texts
        self._write = writer(parse_schema(text, given.named(number)), usual_type(kind), "value")

    def encode(self, values: Any) -> Any:
        """A binary array with the encoding of each value of an array without nulls."""
        found = []
        for row in python_rows(with_numbers(values), "Avro"):
            body = bytearray()
            self._write(row, body)
            found.append(bytes(body))
        return pa.array(found, pa.binary())


def writer(schema: AvroType, kind: Any, path: str) -> Write:
    """Writes values of an Arrow type. Raises `InvalidArgument` if there is no such conversion."""
    if schema.kind == "union":
        return _unions(schema, kind, path)
    write = _values(schema, kind, path)
    if write is None:
        raise errors.InvalidArgument(
            f"{path} is {sql_name(kind)}, and is not written as Avro's {schema.shown}: see the"
            " table of types in docs/payloads.md"
        )
    return _not_null(write, path)


def _not_null(write: Write, path: str) -> Write:
    def checked(value: Any, body: bytearray) -> None:
        if value is None:
            raise errors.InvalidArgument(
                f"{path} is null in a row, and its Avro type has no null: make it a union with null"
            )
        write(value, body)

    return checked


def _unions(schema: AvroType, kind: Any, path: str) -> Write:
    nulls = [n for n, one in enumerate(schema.inner) if one.kind == "null"]
    others = [n for n, one in enumerate(schema.inner) if one.kind != "null"]
    if len(others) != 1:
        raise errors.InvalidArgument(
            f"{path} is Avro's {schema.shown}: only unions of null and one type are written"
        )
    mark = _long(others[0])
    write = writer(schema.inner[others[0]], kind, path)

    def of_union(value: Any, body: bytearray) -> None:
        if value is None and nulls:
            body += _long(nulls[0])
        else:
            body += mark
            write(value, body)

    return of_union


def _values(schema: AvroType, kind: Any, path: str) -> Write | None:
    if schema.kind == "record" and pa.types.is_struct(kind):
        return _records(schema, kind, path)
    if schema.kind == "array" and pa.types.is_list(kind):
        return _arrays(writer(schema.inner[0], kind.value_type, f"{path}[]"))
    if schema.kind == "map" and pa.types.is_map(kind):
        return _maps(writer(schema.inner[0], kind.item_type, f"{path}[]"))
    if pa.types.is_decimal(kind):
        return _decimals(schema, kind, path)
    if kind in TIMES:
        unit = TIMES[kind].get(schema.logical)
        return None if unit is None else lambda value, body: _add_long(value // unit, body)
    if pa.types.is_date(kind):
        return _add_long if schema.logical == "date" else None
    if pa.types.is_integer(kind):
        bits = {"int": 32, "long": 64}.get(schema.kind, 0)
        return _add_long if kind.bit_width <= bits and not schema.logical else None
    return _others(schema, kind, path)


def _others(schema: AvroType, kind: Any, path: str) -> Write | None:
    if kind == pa.bool_() and schema.kind == "boolean":
        return lambda value, body: body.append(value)
    if pa.types.is_floating(kind):
        if schema.kind == "double":
            return lambda value, body: body.extend(_DOUBLE.pack(value))
        is_float = schema.kind == "float" and kind == pa.float32()
        return (lambda value, body: body.extend(_FLOAT.pack(value))) if is_float else None
    if kind == pa.string():
        if schema.kind == "enum":
            return _enums(schema, path)
        return _add_text if schema.kind == "string" else None
    if kind == pa.binary() and not schema.logical:
        if schema.kind == "fixed":
            return _fixed(schema, path)
        return _add_bytes if schema.kind == "bytes" else None
    return None


def _records(schema: AvroType, kind: Any, path: str) -> Write:
    types = {field.name: field.type for field in kind}
    unknown = types.keys() - {name for name, _ in schema.fields}
    if unknown:
        raise errors.InvalidArgument(
            f"the Avro schema has no field {path}.{sorted(unknown)[0]}. It has:"
            f" {', '.join(name for name, _ in schema.fields) or 'none'}"
        )
    steps = [
        (name, writer(one, types[name], f"{path}.{name}") if name in types else _absent(one, name))
        for name, one in schema.fields
    ]

    def of_record(value: Any, body: bytearray) -> None:
        for name, write in steps:
            write(value.get(name), body)

    return of_record


def _absent(schema: AvroType, name: str) -> Write:
    """Null, for a field that no column has."""
    for number, one in enumerate(schema.inner):
        if schema.kind == "union" and one.kind == "null":
            return lambda value, body: body.extend(_long(number))
    if schema.kind == "null":
        return lambda value, body: None
    raise errors.InvalidArgument(
        f"the Avro schema has a field {name}, which may not be null, and there is no such column"
    )


def _arrays(of_item: Write) -> Write:
    def of_array(value: Any, body: bytearray) -> None:
        if value:
            _add_long(len(value), body)
            for item in value:
                of_item(item, body)
        body.append(0)

    return of_array


def _maps(of_item: Write) -> Write:
    def of_map(value: Any, body: bytearray) -> None:
        if value:
            _add_long(len(value), body)
            for key, item in value.items():
                _add_text(key, body)
                of_item(item, body)
        body.append(0)

    return of_map


def _decimals(schema: AvroType, kind: Any, path: str) -> Write | None:
    if schema.logical != "decimal" or schema.scale < kind.scale:
        return None
    limit = 10**schema.precision

    def of_decimal(value: Any, body: bytearray) -> None:
        unscaled = int(value.scaleb(schema.scale, _EXACT))
        size = schema.size or (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        if not -limit < unscaled < limit or unscaled.bit_length() > 8 * size - (unscaled >= 0):
            raise errors.InvalidArgument(f"{path} is {value}, too large for Avro's {schema.shown}")
        raw = unscaled.to_bytes(size, "big", signed=True)
        body.extend(raw) if schema.kind == "fixed" else _add_bytes(raw, body)

    return of_decimal


def _enums(schema: AvroType, path: str) -> Write:
    numbers = {symbol: _long(number) for number, symbol in enumerate(schema.symbols)}

    def of_enum(value: Any, body: bytearray) -> None:
        if value not in numbers:
            raise errors.InvalidArgument(f"{path} is {value!r:.80}, no symbol of {schema.name}")
        body += numbers[value]

    return of_enum


def _fixed(schema: AvroType, path: str) -> Write:
    def of_fixed(value: Any, body: bytearray) -> None:
        if len(value) != schema.size:
            raise errors.InvalidArgument(
                f"{path} has {len(value)} bytes, and {schema.name} has {schema.size}"
            )
        body += value

    return of_fixed


def _long(value: int) -> bytes:
    body = bytearray()
    _add_long(value, body)
    return bytes(body)


def _add_long(value: int, body: bytearray) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        body.append(rest & 0x7F | 0x80)
        rest >>= 7
    body.append(rest)


def _add_bytes(value: bytes, body: bytearray) -> None:
    _add_long(len(value), body)
    body += value


def _add_text(value: str, body: bytearray) -> None:
    _add_bytes(value.encode(), body)
