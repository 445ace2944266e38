"""Queue units -> records, the units of a pull, runs of a pull response: the twin of `spans.c`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.record_layout import (
    ELSEWHERE,
    PRE_BLANK_SIZE,
    RECORD_SIZE_MIN,
    UNIT,
    UNIT_SIZE,
    WIRE_PLACE_SHIFT,
    wire_place,
)
from broker_core.codec.records.record_parse import (
    ParsedRecord,
    RecordFault,
    as_view,
    parse_record,
    verify_checksums,
)
from broker_core.errors import CorruptRecord, MalformedRecord

__all__ = ["adjacent_runs", "choose_units", "cut_wire_runs", "gather_records"]

Span = tuple[int, Buffer]
"""A piece of the log: its position and its bytes."""

# TOTALSIZE and QUEUEOFFSET.
_PLACE: Final = Struct(">i16xq")


def gather_records(spans: Sequence[Span], units: Buffer, queue_offset: int, verify: int) -> bytes:
    """The records that `units` point to, one after the other, found in the log pieces `spans`."""
    pieces = LogPieces(spans)
    parts: list[memoryview] = []
    for number, (position, size) in enumerate(unit_places(units)):
        try:
            view, start = pieces.locate(position, size)
            if verify:
                read_unit(view, start, position, size, queue_offset + number, verify)
        except RecordFault as fault:
            raise CorruptRecord("", position, fault.reason) from None
        parts.append(view[start : start + size])
    return b"".join(parts)


def adjacent_runs(units: Buffer, count_max: int) -> list[tuple[int, int]]:
    """Log position and size of each run of records that lie one after the other.

    Empty for more than `count_max` runs, or units that cannot be any.
    """
    runs: list[tuple[int, int]] = []
    for position, size in unit_places(units):
        if position < 0 or size <= 0 or position > I64_MAX - size:
            return []
        if runs and sum(runs[-1]) == position:
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
        else:
            runs.append((position, size))
    return runs if len(runs) <= count_max else []


class LogPieces:
    """Log pieces sorted by position."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._positions = [position for position, _ in spans]
        self._views = [as_view(buffer) for _, buffer in spans]

    def locate(self, position: int, size: int) -> tuple[memoryview, int]:
        """Piece and index in it of `[position, position + size)`."""
        if size == PRE_BLANK_SIZE:
            raise RecordFault(reasons.PRE_BLANK_UNIT)
        if position < 0 or size <= 0:
            raise RecordFault(reasons.BAD_UNIT)
        piece = bisect_right(self._positions, position) - 1
        if piece >= 0:
            view, start = self._views[piece], position - self._positions[piece]
            if start + size <= len(view):
                return view, start
        raise RecordFault(reasons.NOT_IN_SPANS)


def unit_places(units: Buffer) -> Iterator[tuple[int, int]]:
    """Log position and record size of each unit."""
    view = as_view(units)
    if len(view) % UNIT_SIZE:
        raise ValueError(reasons.BAD_UNITS)
    return ((position, size) for position, size, _ in UNIT.iter_unpack(view))


def read_unit(
    view: memoryview, start: int, position: int, size: int, queue_offset: int, verify: int
) -> ParsedRecord:
    """The record of a unit, checked against the unit and its queue offset."""
    record = parse_record(view, start, start + size)
    if not verify & ELSEWHERE and record.physical_offset != position:
        raise RecordFault(reasons.BAD_POSITION)
    level = verify & ~ELSEWHERE
    if level:
        verify_checksums(view, start, record, level)
    if record.size != size:
        raise RecordFault(reasons.UNIT_SIZE_DISAGREES)
    if record.queue_offset != queue_offset:
        raise RecordFault(reasons.QUEUE_OFFSET_DISAGREES)
    return record


Choice = tuple[list[tuple[int, int]], int, bool, bool]
"""Runs of consecutive units to return, number of units visited, whether any was filtered out, and
whether any record has been deleted already."""


def choose_units(
    units: Buffer, log_start: int, count_max: int, size_max: int, codes: Buffer | None
) -> Choice:
    """Select matching units until a limit is reached, but always at least one.

    `codes` are the tag codes wanted, native int32 each; None selects all.
    """
    view = memoryview(units).cast("B")
    if len(view) % UNIT_SIZE:
        raise ValueError(reasons.BAD_UNITS)
    wanted = None if codes is None else frozenset(memoryview(codes).cast("B").cast("i"))
    runs: list[tuple[int, int]] = []
    count = size = visited = 0
    filtered = removed = False
    for position, record_size, code in UNIT.iter_unpack(view):
        if position < log_start or record_size == PRE_BLANK_SIZE:
            removed = True
        elif wanted is not None and _low_32_bits(code) not in wanted:
            filtered = True
        else:
            if count and (count >= count_max or size + record_size > size_max):
                break
            if runs and runs[-1][1] == visited:
                runs[-1] = (runs[-1][0], visited + 1)
            else:
                runs.append((visited, visited + 1))
            count += 1
            size += record_size
        visited += 1
    return runs, visited, filtered, removed


def _low_32_bits(code: int) -> int:
    """As a signed int, as in subscriptions."""
    return (code & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


WireRun = tuple[int, int, int, int, bytes]
"""First queue offset, number of records, their start and end in the data, a queue unit for each.

The position of a unit is `wire_place(first offset)` plus its distance from the start of the run."""


def cut_wire_runs(data: Buffer, start: int, until: int) -> list[WireRun]:
    """The runs of the response to a pull from offset `start`; records from `until` on are left out.

    Raises `MalformedRecord` when sizes do not add up, offsets do not rise or begin before `start`.
    Contents are verified when the columns are decoded.
    """
    view = memoryview(data).cast("B")
    runs: list[WireRun] = []
    units: list[bytes] = []
    at = begin = first_offset = 0
    expected = start
    while at < len(view):
        size = _size_at(view, at)
        _, offset = _PLACE.unpack_from(view, at)
        if offset < expected:
            raise MalformedRecord(at, reasons.QUEUE_GAP)
        if offset >= until:
            break
        if not units or offset != expected:
            if units:
                runs.append((first_offset, len(units), begin, at, b"".join(units)))
            units, begin, first_offset = [], at, offset
        units.append(UNIT.pack(wire_place(first_offset) + at - begin, size, 0))
        expected = offset + 1
        at += size
    if units:
        runs.append((first_offset, len(units), begin, at, b"".join(units)))
    return runs


def _size_at(view: memoryview, at: int) -> int:
    left = len(view) - at
    if left < RECORD_SIZE_MIN:
        raise MalformedRecord(at, reasons.HEADER_CUT)
    size: int = _PLACE.unpack_from(view, at)[0]
    if size < RECORD_SIZE_MIN:
        raise MalformedRecord(at, reasons.SIZE_TOO_SMALL)
    if size > left or size >= 1 << WIRE_PLACE_SHIFT:
        raise MalformedRecord(at, reasons.SIZE_PAST_LIMIT)
    return size
