"""Plans of compiled decoders, and the Arrow arrays that they return.

A plan lists columns in the order of `flat_columns`: the whole payload first, the children of a
column one after the other. Formats whose bodies do not describe themselves also have steps, the
types of their schema. `_columns.c` reads both as rows of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_rmq.number_arrays import number_array
from pyspark_rmq.payloads.bad_records import BadRow, Decoded
from pyspark_rmq.payloads.native import ColumnDecoder
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ

JSON: Final = 0
MSGPACK: Final = 1
AVRO: Final = 2
PROTOBUF: Final = 3

NEVER_FRAMED: Final = 0
ALWAYS_FRAMED: Final = 1
MAY_BE_FRAMED: Final = 2

STRUCT: Final = 0
LIST: Final = 1
MAP: Final = 2
DECIMAL: Final = 12
_SCALARS: Final = {
    pa.bool_(): 3,
    pa.int8(): 4,
    pa.int16(): 5,
    pa.int32(): 6,
    pa.int64(): 7,
    pa.float32(): 8,
    pa.float64(): 9,
    pa.string(): 10,
    pa.binary(): 11,
    pa.date32(): 13,
    TIMESTAMP: 14,
    TIMESTAMP_NTZ: 15,
}
_COLUMNS_MAX: Final = 10_000

ByRow = Callable[[Any], Decoded]


class FlatColumn(NamedTuple):
    """A column of a plan."""

    name: str
    kind: Any
    first: int
    """The place of its first child."""
    child_count: int


class Step(NamedTuple):
    """A type of a schema; what its numbers mean is up to the format."""

    kind: int
    column: int = -1
    first: int = 0
    child_count: int = 0
    number: int = 0
    more: int = 0
    name: str = ""


class Root(NamedTuple):
    """A schema of Avro: its id or -1, the step that reads and the step that only checks."""

    id: int
    reads: int
    skips: int


class PlannedDecoder:
    """Decodes bodies with the compiled decoder, and the rows that it refuses with `by_row`."""

    def __init__(self, kind: Any, decoder: Any, columns: Sequence[FlatColumn]) -> None:
        self._kind = kind
        self._decoder = decoder
        self._columns = columns

    def decode(self, bodies: Any, by_row: ByRow) -> Decoded:
        """The payload of each body."""
        if not len(bodies):
            return Decoded(pa.nulls(0, self._kind))
        values, refused = self.columns(bodies)
        if not len(refused):
            return Decoded(values)
        rest = by_row(bodies.take(number_array(refused)))
        bad = [BadRow(int(refused[row]), reason) for row, reason in rest.bad]
        if rest.values.null_count == len(refused):
            return Decoded(values, bad)
        if len(refused) == len(bodies):
            return rest
        places = np.arange(len(bodies), dtype=np.int32)
        places[refused] = len(bodies) + np.arange(len(refused), dtype=np.int32)
        joined = pa.concat_arrays([values, rest.values])
        return Decoded(joined.take(number_array(places)), bad)

    def columns(self, bodies: Any) -> tuple[Any, Any]:
        """The payloads, null for refused rows, and the places of those."""
        _, offsets, data = bodies.buffers()
        found, refused = self._decoder.decode(
            data if data is not None else b"", offsets, bodies.offset, len(bodies)
        )
        return self._array(found, 0, self._kind), np.frombuffer(refused, np.int32)

    def _array(self, found: Sequence[Any], place: int, kind: Any) -> Any:
        length, null_count, valid, offsets, values = found[place]
        first = self._columns[place].first
        buffers = [None if valid is None else pa.py_buffer(valid)]
        if pa.types.is_struct(kind):
            children = [self._array(found, first + n, field.type) for n, field in enumerate(kind)]
            return pa.Array.from_buffers(kind, length, buffers, null_count, children=children)
        if offsets is not None:
            buffers.append(pa.py_buffer(offsets))
        if pa.types.is_list(kind):
            items = self._array(found, first, kind.value_type)
            return pa.Array.from_buffers(kind, length, buffers, null_count, children=[items])
        if pa.types.is_map(kind):
            entries = self._entries(found, first, kind)
            return pa.Array.from_buffers(kind, length, buffers, null_count, children=[entries])
        return pa.Array.from_buffers(kind, length, [*buffers, pa.py_buffer(values)], null_count)

    def _entries(self, found: Sequence[Any], first: int, kind: Any) -> Any:
        keys = self._array(found, first, kind.key_type)
        items = self._array(found, first + 1, kind.item_type)
        pair = pa.struct([kind.key_field, kind.item_field])
        return pa.Array.from_buffers(pair, len(keys), [None], 0, children=[keys, items])


def flat_columns(kind: Any) -> list[FlatColumn] | None:
    """The columns of a type; None if the compiled decoders do not have it."""
    found = [FlatColumn("", kind, 0, 0)]
    place = 0
    while place < len(found):
        name, one, _, _ = found[place]
        children = _children(one)
        if children is None or len(found) + len(children) > _COLUMNS_MAX:
            return None
        found[place] = FlatColumn(name, one, len(found) if children else 0, len(children))
        found += [FlatColumn(*child, 0, 0) for child in children]
        place += 1
    return found


def _children(kind: Any) -> list[tuple[str, Any]] | None:
    if pa.types.is_struct(kind):
        # A struct of a user's schema has neither. Other structs, such as VARIANT, are not plain
        # fields.
        is_plain = all(field.nullable and not field.metadata for field in kind)
        return [(field.name, field.type) for field in kind] if is_plain else None
    if pa.types.is_list(kind):
        return [("", kind.value_type)]
    if pa.types.is_map(kind):
        # Other keys are left to the decoders in Python.
        is_plain = kind.key_type == pa.string()
        return [("", kind.key_type), ("", kind.item_type)] if is_plain else None
    if pa.types.is_decimal128(kind):
        return [] if 0 <= kind.scale <= kind.precision else None
    return [] if kind in _SCALARS else None


def planned(
    body_format: int,
    kind: Any,
    *,
    takes_local: bool = False,
    steps: Sequence[Step] = (),
    roots: Iterable[Root] = (),
    framing: int = NEVER_FRAMED,
) -> PlannedDecoder | None:
    """None if the native module is missing, or does not have this type.

    `takes_local`: times without a zone are in UTC.
    """
    columns = flat_columns(kind) if ColumnDecoder is not None else None
    if columns is None or not pa.types.is_nested(kind):
        return None
    names = bytearray()
    rows = [_row(column, takes_local, names) for column in columns]
    step_rows = [(*step[:-1], *_named(step.name, names)) for step in steps]
    decoder = ColumnDecoder(
        body_format, framing, _packed(rows), _packed(step_rows), _packed(roots), bytes(names)
    )
    return PlannedDecoder(kind, decoder, columns)


def _row(column: FlatColumn, takes_local: bool, names: bytearray) -> tuple[int, ...]:
    kind = column.kind
    precision = scale = 0
    if pa.types.is_decimal128(kind):
        number, precision, scale = DECIMAL, kind.precision, kind.scale
    elif pa.types.is_struct(kind):
        number = STRUCT
    elif pa.types.is_list(kind):
        number = LIST
    else:
        number = MAP if pa.types.is_map(kind) else _SCALARS[kind]
    place = _named(column.name, names)
    return (number, column.first, column.child_count, precision, scale, int(takes_local), *place)


def _named(name: str, names: bytearray) -> tuple[int, int]:
    raw = name.encode()
    names += raw
    return len(names) - len(raw), len(raw)


def _packed(rows: Iterable[Sequence[int]]) -> bytes:
    return np.array([number for row in rows for number in row], np.int64).tobytes()
