"""Stored records as an answer carries them, cut into runs: the twin of `cut_wire_runs`."""

from __future__ import annotations

from struct import Struct
from typing import Final

from broker_core.codec import record_reasons as reasons
from broker_core.codec.column_batch import Buffer
from broker_core.codec.record_layout import FIXED_SIZE, UNIT
from broker_core.errors import MalformedRecord

# TOTALSIZE and QUEUEOFFSET.
_PLACE: Final = Struct(">i16xq")
# No frame is as long as this; and this many offsets apart, runs are not joined.
_PLACE_SHIFT: Final = 24
_PLACE_MASK: Final = (1 << 38) - 1

WireRun = tuple[int, int, int, int, bytes]
"""First queue offset, number of records, where they begin and end, and a queue unit for each.

The position of a unit is `wire_place(first offset)` plus its place behind the beginning of the run,
so that neighbouring runs of one queue never overlap."""


def wire_place(first_offset: int) -> int:
    """Where a run that begins with this queue offset has its first record."""
    return (first_offset & _PLACE_MASK) << _PLACE_SHIFT


def cut_wire_runs(data: Buffer, start: int, until: int) -> list[WireRun]:
    """The runs of an answer to a pull from offset `start`; records from `until` on are left out.

    Raises `MalformedRecord` when sizes do not add up, offsets do not rise or begin before `start`.
    Contents are proven by the codec when the columns are made.
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
    if left < FIXED_SIZE:
        raise MalformedRecord(at, reasons.HEADER_CUT)
    size: int = _PLACE.unpack_from(view, at)[0]
    if size < FIXED_SIZE:
        raise MalformedRecord(at, reasons.SIZE_TOO_SMALL)
    if size > left or size >= 1 << _PLACE_SHIFT:
        raise MalformedRecord(at, reasons.SIZE_PAST_LIMIT)
    return size
