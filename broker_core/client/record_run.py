"""Stored records as they come over the wire, cut into runs of consecutive queue offsets.

The records of an answer lie one behind the other but come from anywhere in the broker's log. The
column codec finds records by log position, so a run carries, beside the bytes, a queue unit for
each record and the pieces of the log that its bytes are. One walk over the sizes makes both;
contents are proven by the codec when the columns are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from broker_core.codec.column_batch import Buffer
from broker_core.codec.message_queue import MessageQueue
from broker_core.codec.record_columns import decode_columns
from broker_core.codec.record_layout import CHECK_CHECKSUMS, FIXED_SIZE, UNIT
from broker_core.errors import MalformedRecord

# TOTALSIZE, QUEUEOFFSET and PHYSICALOFFSET.
_PLACE = Struct(">i16xqq")


class RecordRun(NamedTuple):
    """Records `first_offset` to `first_offset + count - 1` of one queue, none missing."""

    first_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    pieces: tuple[memoryview, ...]
    """The records one behind the other, byte for byte as the broker stores them."""
    units: bytes
    """A consume-queue unit for each record, without tag codes."""
    spans: list[tuple[int, memoryview]]
    """(log position, bytes): the same records as pieces of the log, by position."""

    @property
    def until_offset(self) -> int:
        """The offset after the last record."""
        return self.first_offset + self.count

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(map(len, self.pieces))

    @property
    def records(self) -> bytes | memoryview:
        """All records in one buffer; a run that was joined copies them."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def columns(
        self, queue: MessageQueue, wanted: int, verify: int = CHECK_CHECKSUMS
    ) -> dict[str, object]:
        """Columns by `codec.column_names`; raises `CorruptRecord` for a record that is not right.

        Proves each record's structure, queue, offset and checksums: the whole-record one where the
        broker writes it, the body's otherwise. Bodies stay compressed; column `sys_flag` tells.
        """
        return decode_columns(
            self.spans, self.units, self.first_offset, queue.queue_id, queue.topic.encode(),
            wanted, verify,
        )  # fmt: skip


def join_runs(runs: Sequence[RecordRun]) -> RecordRun:
    """One run of neighbouring ones, sharing their bytes."""
    if len(runs) == 1:
        return runs[0]
    spans = [span for run in runs for span in run.spans]
    return RecordRun(
        runs[0].first_offset,
        sum(run.count for run in runs),
        tuple(piece for run in runs for piece in run.pieces),
        b"".join([run.units for run in runs]),
        sorted(spans, key=_position_of),
    )


def _position_of(span: tuple[int, memoryview]) -> int:
    return span[0]


def cut_runs(records: Buffer, start: int, until: int | None) -> list[RecordRun]:
    """The runs of an answer to a pull from offset `start`; records from `until` on are left out.

    Raises `MalformedRecord` when sizes do not add up, offsets do not rise or begin before `start`.
    """
    view = memoryview(records)
    runs: list[RecordRun] = []
    walk = _Walk(view, 0, start)
    expected = start
    at = 0
    while at < len(view):
        if len(view) - at < FIXED_SIZE:
            raise MalformedRecord(at, f"{len(view) - at} bytes are less than a record")
        size, offset, position = _PLACE.unpack_from(view, at)
        if not FIXED_SIZE <= size <= len(view) - at:
            raise MalformedRecord(at, f"a record of {size} bytes, {len(view) - at} are left")
        if offset < expected:
            raise MalformedRecord(at, f"queue offset {offset} where {expected} was due")
        if until is not None and offset >= until:
            break
        if offset != expected:
            walk.finish_into(runs, at)
            walk = _Walk(view, at, offset)
        walk.take(at, size, position)
        expected = offset + 1
        at += size
    walk.finish_into(runs, at)
    return runs


class _Walk:
    """The run that is being collected."""

    __slots__ = ("_first_offset", "_spans", "_start", "_units", "_view")

    def __init__(self, view: memoryview, start: int, first_offset: int) -> None:
        self._view = view
        self._start = start
        self._first_offset = first_offset
        self._units: list[bytes] = []
        # [log position, start, end] of each piece
        self._spans: list[list[int]] = []

    def take(self, at: int, size: int, position: int) -> None:
        spans = self._spans
        if spans and position == spans[-1][0] + at - spans[-1][1]:
            spans[-1][2] = at + size
        else:
            spans.append([position, at, at + size])
        self._units.append(UNIT.pack(position, size, 0))

    def finish_into(self, runs: list[RecordRun], end: int) -> None:
        if not self._units:
            return
        view = self._view
        # The codec searches by position; a queue need not be in the order of its log.
        spans = [(position, view[a:b]) for position, a, b in sorted(self._spans)]
        runs.append(
            RecordRun(
                self._first_offset,
                len(self._units),
                (view[self._start : end],),
                b"".join(self._units),
                spans,
            )
        )
