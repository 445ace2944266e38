"""JSON bodies to Arrow columns.

    all bodies of a batch ──► compiled decoder (`native/`) ──► columns
    bodies that it refuses, or all where it is not built:
        one text, a line each ──► pyarrow.json ──► columns
                  any of them refused: the same in smaller parts,
                  then body by body (`json_values.py`), which finds the bad ones and the reasons

The parser reads a sequence of objects and does not know where a body ends. Every body begins with
`{` and ends with `}`, and between `}` and `{` there is only a line feed, which is legal JSON only
outside of all objects. So each body holds one object or more, and as many objects as bodies means
one each. Where the parser's rules differ from Spark's (dates, binary, local times) it reads texts,
which are converted afterwards.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pyspark_rmq.number_arrays import number_array
from pyspark_rmq.payloads.bad_records import BadRow, Decoded, Undecodable
from pyspark_rmq.payloads.formats import UTC
from pyspark_rmq.payloads.json_values import DEPTH_MAX, converter, parse
from pyspark_rmq.payloads.native import plans
from pyspark_rmq.payloads.nested_arrays import with_leaves
from pyspark_rmq.payloads.reader_options.time_texts import USUAL, TimeTexts
from pyspark_rmq.payloads.spark_types import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    has_variant,
    is_variant,
)

_PART_ROWS: Final = 1_024
# Every number of so many digits fits into 128 bits.
_PARSED_DIGITS_MAX: Final = 38
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")
_SPACE: Final = b" \t\r\n"
_WORD: Final = re.compile(rb"[:,\[\s]-?(?:Inf|NaN)")
# Arrow has dates in it.
_YEAR_ZERO: Final = re.compile(rb'"0000-')
# Numbers that may have more than 38 places. Arrow's parser has no power of ten for them, and takes
# one from memory beyond its table.
_MANY_PLACES: Final = re.compile(rb'[:,\["\s][+-]?[0-9.]+[eE]-[0-9]{2,}["\s,}\]]|\.[0-9]{30}')
# Not a Python text, whose conversion makes Arrow import pandas.
_LINE_FEED: Final = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\n")]
)
# What the parser raises, and what conversions of its texts raise.
_REFUSED: Final = (pa.ArrowException, ValueError)


class JsonDecoder:
    """Decodes bodies to one type."""

    def __init__(
        self,
        kind: Any,
        times: TimeTexts | None = None,
        path: str = "value",
        keeps_fields: bool = False,
    ) -> None:
        """With `keeps_fields` a bad row keeps the fields that can be converted."""
        self._kind = kind
        self._times = times or TimeTexts()
        self._problems: list[str] | None = [] if keeps_fields else None
        self._convert = converter(kind, self._times, path, self._problems)
        is_object = pa.types.is_struct(kind) and kind.num_fields and not has_variant(kind)
        self._parsed = _parsed_type(kind, self._times) if is_object else None
        self._has_decimals = _has_decimals(kind)
        # Compiled code reads the usual forms of times and no VARIANT.
        is_planned = self._times.patterns == USUAL and not has_variant(kind)
        takes_local = self._times.time_zone == UTC
        self._planned = (
            plans.planned(plans.JSON, kind, takes_local=takes_local) if is_planned else None
        )

    def decode(self, bodies: Any) -> Decoded:
        """The payload of each body."""
        if self._planned is None:
            return self.by_parts(bodies)
        return self._planned.decode(bodies, self.by_parts)

    def by_parts(self, bodies: Any) -> Decoded:
        """All at once, in parts or body by body."""
        whole = self.by_column(bodies)
        if whole is not None:
            return Decoded(whole)
        parts, bad = [], []
        for first in range(0, len(bodies), _PART_ROWS):
            part = bodies.slice(first, _PART_ROWS)
            values = self.by_column(part) if len(bodies) > _PART_ROWS else None
            if values is None:
                decoded = self.by_row(part)
                values = decoded.values
                bad += [BadRow(first + row, reason) for row, reason in decoded.bad]
            parts.append(values)
        return Decoded(pa.concat_arrays(parts), bad)

    def by_column(self, bodies: Any) -> Any:
        """All payloads; None if some body or the type needs `by_row`."""
        if self._parsed is None or not len(bodies):
            return None
        text = _lines(bodies)
        if text is None or _YEAR_ZERO.search(text):
            return None
        if self._has_decimals and _MANY_PLACES.search(text):
            return None
        try:
            found = _parse(text, self._parsed)
            if found.num_rows != len(bodies):
                return None
            [batch] = found.combine_chunks().to_batches()
            batch.validate(full=True)
            columns = [
                with_leaves(batch.column(place), field.type, self._finished)
                for place, field in enumerate(self._kind)
            ]
        except _REFUSED:
            return None
        return pa.StructArray.from_arrays(columns, fields=list(self._kind))

    def by_row(self, bodies: Any) -> Decoded:
        """The reference: body by body."""
        values: list[Any] = []
        bad: list[BadRow] = []
        for row, body in enumerate(bodies.to_pylist()):
            try:
                values.append(self._convert(parse(body)))
            except Undecodable as problem:
                values.append(absent(self._kind) if self._problems is not None else None)
                bad.append(BadRow(row, str(problem)))
            else:
                if self._problems:
                    bad.append(BadRow(row, self._problems[0]))
                    self._problems.clear()
        return Decoded(pa.array(values, self._kind), bad)

    def _finished(self, parsed: Any, kind: Any) -> Any:
        """Parsed values as their type. Raises one of `_REFUSED` for what only `by_row` reads."""
        if pa.types.is_binary(kind):
            return _converted(parsed, converter(kind, self._times), kind)
        read = None
        if pa.types.is_date(kind):
            read = self._times.date if self._times.patterns.date else None
        elif kind == TIMESTAMP_NTZ:
            read = self._times.local if self._times.patterns.local else None
        elif kind == TIMESTAMP:
            read = None if _is_usual(self._times) else self._times.timestamp
        if read is None:
            return parsed.cast(kind)
        numbers = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return _converted(parsed, read, numbers).cast(kind)


def _lines(bodies: Any) -> Any:
    """The bodies as lines of one buffer; None unless each of them looks like one object."""
    try:
        texts = bodies.cast(pa.string())
    except pa.ArrowInvalid:
        # Not UTF-8. The parser would not notice.
        return None
    if not _are_objects(bodies):
        stripped = [body.strip(_SPACE) for body in bodies.to_pylist()]
        bodies = pa.array(stripped, pa.binary())
        texts = bodies.cast(pa.string())
        if not _are_objects(bodies):
            return None
    bounds = number_array(np.array([0, len(texts)], np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(bounds, texts), _LINE_FEED)
    text = joined[0].as_buffer()
    raw = np.frombuffer(text, np.uint8)
    # The parser stops at a zero byte.
    if (raw == 0).any() or _has_words(raw, text) or _may_be_deep(raw, bodies):
        return None
    return text


def _has_words(raw: Any, text: Any) -> bool:
    """Whether there are words such as `Inf`: the parser accepts other ones than Spark's reader."""
    for first, second, third in (b"Inf", b"NaN"):
        at = np.flatnonzero(raw[:-2] == first)
        if ((raw[at + 1] == second) & (raw[at + 2] == third)).any():
            return _WORD.search(text) is not None
    return False


def _may_be_deep(raw: Any, bodies: Any) -> bool:
    """Whether some body has enough brackets to be nested too deeply: the parser has no limit."""
    # The two brackets differ in one bit.
    if np.count_nonzero((raw & 0xDF) == ord("[")) < len(bodies) + DEPTH_MAX:
        # Each body has one; the rest is too few.
        return False
    brackets = np.flatnonzero((np.frombuffer(bodies.buffers()[2], np.uint8) & 0xDF) == ord("["))
    counts = np.diff(np.searchsorted(brackets, _bounds(bodies)))
    return bool((counts > DEPTH_MAX).any())


def _are_objects(bodies: Any) -> bool:
    data, bounds = bodies.buffers()[2], _bounds(bodies)
    if data is None or (bounds[1:] == bounds[:-1]).any():
        return False
    raw = np.frombuffer(data, np.uint8)
    return bool((raw[bounds[:-1]] == _OPEN).all() and (raw[bounds[1:] - 1] == _CLOSE).all())


def _bounds(bodies: Any) -> Any:
    """Where bodies begin and end in their buffer. Unlike `to_numpy` it does not import pandas."""
    offsets = np.frombuffer(bodies.buffers()[1], np.int32)
    return offsets[bodies.offset : bodies.offset + len(bodies) + 1]


def _parse(text: Any, schema: Any) -> Any:
    return pyarrow.json.read_json(
        pa.BufferReader(text),
        # One block, whatever line feeds a body has.
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
    )


def _parsed_type(kind: Any, times: TimeTexts) -> Any:
    """The schema that the parser is given for a struct; None if it cannot read it."""
    fields = []
    for field in kind:
        parsed = _parsed_field(field.type, times)
        if parsed is None:
            return None
        fields.append(pa.field(field.name, parsed))
    return pa.schema(fields)


def _parsed_field(kind: Any, times: TimeTexts) -> Any:
    if pa.types.is_map(kind):
        return None
    if pa.types.is_struct(kind):
        inner = _parsed_type(kind, times)
        return None if inner is None else pa.struct(list(inner))
    if pa.types.is_list(kind):
        item = _parsed_field(kind.value_type, times)
        return None if item is None else pa.list_(pa.field("element", item))
    if pa.types.is_decimal(kind) and kind.precision + kind.scale > _PARSED_DIGITS_MAX:
        # The parser does not notice that a number of more digits overflows at the scale.
        return None
    # The parser takes dates as numbers, binary values as they are, and applies offsets to local
    # times.
    if pa.types.is_date(kind) or pa.types.is_binary(kind) or kind == TIMESTAMP_NTZ:
        return pa.string()
    if kind == TIMESTAMP and not _is_usual(times):
        return pa.string()
    return kind


def _has_decimals(kind: Any) -> bool:
    return pa.types.is_decimal(kind) or any(
        _has_decimals(kind.field(place).type) for place in range(kind.num_fields)
    )


def _is_usual(times: TimeTexts) -> bool:
    """Whether the parser reads timestamps as Spark would."""
    return times.time_zone == UTC and not times.patterns.timestamp


def _converted(texts: Any, convert: Any, kind: Any) -> Any:
    found = [None if text is None else convert(text) for text in texts.to_pylist()]
    return pa.array(found, kind)


def absent(kind: Any) -> Any:
    """What mode=PERMISSIVE gives for a body that is not JSON, as `from_json` does."""
    if not pa.types.is_struct(kind) or is_variant(kind):
        return None
    return dict.fromkeys(field.name for field in kind)
