"""Avro bodies to Arrow values.

If the compiled decoder (`native/`) is built, it decodes all bodies of a batch, and this one only
those that it refuses. This one is composed of functions `read(body, at) -> (value, end)`, one for
each type of the schema; for fields that are not selected they only find the end. Every length and
number is checked, to detect bytes of another schema as far as Avro's encoding allows.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from broker_core import errors
from pyspark_rmq.payloads.avro.schemas import AvroType, parse_schema
from pyspark_rmq.payloads.bad_records import Decoded, Undecodable, decoded_by_row
from pyspark_rmq.payloads.native.avro_plan import planned_avro
from pyspark_rmq.payloads.registry.frames import FRAME_SIZE
from pyspark_rmq.payloads.schema_options import ALWAYS, NONE, SchemaOptions
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ, sql_name

Read = Callable[[bytes, int], tuple[Any, int]]

_I64: Final = range(-(1 << 63), 1 << 63)
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
# Kind of Arrow timestamps -> logical type -> microseconds of its unit.
TIMES: Final[Mapping[Any, Mapping[str, int]]] = {
    TIMESTAMP: {"timestamp-millis": 1_000, "timestamp-micros": 1},
    TIMESTAMP_NTZ: {"local-timestamp-millis": 1_000, "local-timestamp-micros": 1},
}


class AvroDecoder:
    """Decodes bodies to one type. Raises `InvalidArgument` if a schema does not fit the type."""

    def __init__(self, kind: Any, given: SchemaOptions) -> None:
        self._kind = kind
        self._framing = given.framing
        self._by_id: dict[int | None, Read] = {}
        known: set[str] = set()
        schemas: dict[int | None, AvroType] = {}
        for number, text in given.texts:
            schema = schemas[number] = parse_schema(text, given.named(number))
            known |= {name for name, _ in _record(schema).fields}
            self._by_id[number] = reader(schema, kind, "value")
        if pa.types.is_struct(kind):
            for field in kind:
                if field.name not in known:
                    raise errors.InvalidArgument(
                        f"the Avro schema has no field {field.name}. It has:"
                        f" {', '.join(sorted(known)) or 'none'}"
                    )

        self._planned = planned_avro(kind, schemas, given.framing)

    def decode(self, bodies: Any) -> Decoded:
        """The payload of each body."""
        if self._planned is None:
            return self.by_row(bodies)
        return self._planned.decode(bodies, self.by_row)

    def by_row(self, bodies: Any) -> Decoded:
        """The reference: body by body."""
        return decoded_by_row(bodies, self._kind, self._value)

    def _value(self, body: bytes) -> Any:
        if self._framing == NONE:
            return _whole(self._by_id[None], body, 0)
        is_framed = len(body) >= FRAME_SIZE and body[0] == 0
        if self._framing == ALWAYS or None not in self._by_id:
            if not is_framed:
                raise Undecodable("not Avro with a schema id: it does not begin with a zero byte")
            return self._framed(body)
        if not is_framed:
            return _whole(self._by_id[None], body, 0)
        # A body without a frame may also begin with a zero byte.
        try:
            plain = _whole(self._by_id[None], body, 0)
        except Undecodable:
            return self._framed(body)
        try:
            self._framed(body)
        except Undecodable:
            return plain
        raise Undecodable(
            "it can be read with a schema id and without: give value.schema.registry.framing"
            f"={ALWAYS} or {NONE}"
        )

    def _framed(self, body: bytes) -> Any:
        number = int.from_bytes(body[1:FRAME_SIZE], "big")
        read = self._by_id.get(number, self._by_id.get(None))
        if read is None:
            raise Undecodable(f"no schema file has id {number}")
        return _whole(read, body, FRAME_SIZE)


def _whole(read: Read, body: bytes, start: int) -> Any:
    try:
        value, end = read(body, start)
    except (IndexError, struct.error):
        raise Undecodable("not Avro of this schema: it ends too early") from None
    if end != len(body):
        raise Undecodable(f"not Avro of this schema: {len(body) - end} bytes are left over")
    if value is None:
        raise Undecodable("the body is null")
    return value


def _record(schema: AvroType) -> AvroType:
    """The only branch of a union that is not null."""
    branches = [one for one in schema.inner if one.kind != "null"]
    return branches[0] if schema.kind == "union" and len(branches) == 1 else schema


def reader(schema: AvroType, kind: Any, path: str) -> Read:
    """Reads values of a schema as those of an Arrow type.

    Raises `InvalidArgument` if there is no such conversion.
    """
    if schema.kind == "union":
        return _branches([reader(one, kind, path) for one in schema.inner])
    if schema.kind == "null":
        return _null
    if schema.kind == "record" and pa.types.is_struct(kind):
        return _records(schema, kind, path)
    if schema.kind == "array" and pa.types.is_list(kind):
        return _arrays(reader(schema.inner[0], kind.value_type, f"{path}[]"))
    if schema.kind == "map" and pa.types.is_map(kind):
        return _maps(reader(schema.inner[0], kind.item_type, f"{path}[]"))
    found = _scalars(schema, kind, path)
    if found is None:
        raise errors.InvalidArgument(
            f"{path} is {sql_name(kind)}, and Avro's {schema.shown} is not read as it: see the"
            " table of types in docs/payloads.md"
        )
    return found


def skipper(schema: AvroType) -> Read:
    """Finds the end of a value, with the same checks as when it is read."""
    if schema.kind == "union":
        return _branches([skipper(one) for one in schema.inner])
    if schema.kind == "record":
        return _sequence([skipper(one) for _, one in schema.fields])
    if schema.kind == "array":
        return _arrays(skipper(schema.inner[0]))
    if schema.kind == "map":
        return _maps(skipper(schema.inner[0]))
    return _plain(schema)


def _branches(reads: list[Read]) -> Read:
    count = len(reads)

    def read(body: bytes, at: int) -> tuple[Any, int]:
        number, at = read_long(body, at)
        if not 0 <= number < count:
            raise Undecodable(f"not Avro of this schema: branch {number} of a union of {count}")
        return reads[number](body, at)

    return read


def _records(schema: AvroType, kind: Any, path: str) -> Read:
    types = {field.name: field.type for field in kind}
    steps: list[tuple[str | None, Read]] = [
        (name, reader(one, types[name], f"{path}.{name}"))
        if name in types
        else (None, skipper(one))
        for name, one in schema.fields
    ]
    missing = types.keys() - {name for name, _ in schema.fields}
    if missing and path != "value":
        raise errors.InvalidArgument(f"record {schema.name} has no field {sorted(missing)[0]}")

    def read(body: bytes, at: int) -> tuple[Any, int]:
        found = {}
        for name, step in steps:
            value, at = step(body, at)
            if name is not None:
                found[name] = value
        return found, at

    return read


def _sequence(steps: list[Read]) -> Read:
    def read(body: bytes, at: int) -> tuple[Any, int]:
        for step in steps:
            _, at = step(body, at)
        return None, at

    return read


def _arrays(of_item: Read) -> Read:
    def read(body: bytes, at: int) -> tuple[Any, int]:
        found = []
        count, at = _block(body, at)
        while count:
            for _ in range(count):
                item, at = of_item(body, at)
                found.append(item)
            count, at = _block(body, at)
        return found, at

    return read


def _maps(of_item: Read) -> Read:
    def read(body: bytes, at: int) -> tuple[Any, int]:
        found = {}
        count, at = _block(body, at)
        while count:
            for _ in range(count):
                key, at = _string(body, at)
                found[key], at = of_item(body, at)
            count, at = _block(body, at)
        return list(found.items()), at

    return read


def _block(body: bytes, at: int) -> tuple[int, int]:
    """The number of items of a block."""
    count, at = read_long(body, at)
    if count < 0:
        # Its size follows, for readers that skip it.
        count = -count
        _, at = read_long(body, at)
    if count > len(body) - at:
        raise Undecodable(f"not Avro of this schema: a block of {count} items")
    return count, at


def read_long(body: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag form, of at most 64 bits."""
    byte = body[at]
    at += 1
    number = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift > 63:
            raise Undecodable("not Avro of this schema: a number of more than 64 bits")
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    if number >> 64:
        raise Undecodable("not Avro of this schema: a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def _int(body: bytes, at: int) -> tuple[int, int]:
    number, at = read_long(body, at)
    if not -(1 << 31) <= number < 1 << 31:
        raise Undecodable(f"not Avro of this schema: {number} is no int")
    return number, at


def _null(body: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(body: bytes, at: int) -> tuple[bool, int]:
    if body[at] > 1:
        raise Undecodable(f"not Avro of this schema: {body[at]} is no boolean")
    return body[at] == 1, at + 1


def _float(body: bytes, at: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(body, at)[0], at + 4


def _double(body: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(body, at)[0], at + 8


def _bytes(body: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(body, at)
    end = at + size
    if size < 0 or end > len(body):
        raise Undecodable(f"not Avro of this schema: a value of {size} bytes")
    return body[at:end], end


def _string(body: bytes, at: int) -> tuple[str, int]:
    raw, at = _bytes(body, at)
    try:
        return raw.decode(), at
    except UnicodeDecodeError:
        raise Undecodable("not Avro of this schema: a text is not UTF-8") from None


def _fixed(size: int) -> Read:
    def read(body: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(body):
            raise IndexError
        return body[at : at + size], at + size

    return read


def _enums(symbols: tuple[str, ...]) -> Read:
    def read(body: bytes, at: int) -> tuple[str, int]:
        number, at = read_long(body, at)
        if not 0 <= number < len(symbols):
            raise Undecodable(f"not Avro of this schema: symbol {number} of {len(symbols)}")
        return symbols[number], at

    return read


_READS: Final[Mapping[str, Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": read_long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _plain(schema: AvroType) -> Read:
    if schema.kind == "fixed":
        return _fixed(schema.size)
    return _enums(schema.symbols) if schema.kind == "enum" else _READS[schema.kind]


def _scalars(schema: AvroType, kind: Any, path: str) -> Read | None:
    read = _READS.get(schema.kind) or (_plain(schema) if schema.kind in ("fixed", "enum") else None)
    if read is None:
        return None
    if pa.types.is_decimal(kind):
        return _decimals(schema, kind, path, read)
    if kind in TIMES:
        unit = TIMES[kind].get(schema.logical)
        return None if unit is None else _times(read, unit, path)
    if pa.types.is_date(kind):
        return read if schema.logical == "date" else None
    if pa.types.is_integer(kind) and schema.kind in ("int", "long"):
        bits = 32 if schema.kind == "int" else 64
        return read if kind.bit_width >= bits else _narrow(read, kind, path)
    accepted = {
        pa.bool_(): ("boolean",),
        pa.float32(): ("float",),
        pa.float64(): ("double", "float", "int"),
        pa.string(): ("string", "enum"),
        pa.binary(): ("bytes", "fixed"),
    }
    return read if schema.kind in accepted.get(kind, ()) else None


def _narrow(read: Read, kind: Any, path: str) -> Read:
    most = 1 << kind.bit_width - 1

    def convert(body: bytes, at: int) -> tuple[int, int]:
        number, at = read(body, at)
        if not -most <= number < most:
            raise Undecodable(f"{path} is {number}, which is not {sql_name(kind)}")
        return number, at

    return convert


def _times(read: Read, unit: int, path: str) -> Read:
    def convert(body: bytes, at: int) -> tuple[int, int]:
        number, at = read(body, at)
        if number * unit not in _I64:
            raise Undecodable(f"{path} is {number} ms, which is not a valid time")
        return number * unit, at

    return convert


def _decimals(schema: AvroType, kind: Any, path: str, read: Read) -> Read | None:
    if schema.logical != "decimal" or schema.scale > kind.scale:
        return None
    exact = decimal.Context(prec=100)
    limit = 10 ** (kind.precision - kind.scale + schema.scale)

    def convert(body: bytes, at: int) -> tuple[decimal.Decimal, int]:
        raw, at = read(body, at)
        unscaled = int.from_bytes(raw, "big", signed=True)
        if not raw or not -limit < unscaled < limit:
            raise Undecodable(f"{path} is too large for {sql_name(kind)}, or has no bytes")
        return decimal.Decimal(unscaled).scaleb(-schema.scale, exact), at

    return convert
