"""The one sequential log: appends batches and groups, rolls files, reads spans.

Owns the segments and the append position. Called by one thread only, which is why there is no
append lock. Nothing is written unless all of it can be: files that an append needs are reserved
before its first byte is stored.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from broker_core.codec.column_batch import ColumnBatch
from broker_core.codec.record_columns import encode_batch, relocate_run
from broker_core.storage.segment_file import Segment
from broker_core.storage.segment_sequence import SegmentSequence

BLANK = struct.Struct(">iI")
BLANK_MAGIC = 0xCBD43194
# A record needs this much room behind it, so that the blank that ends a file always fits.
BLANK_SIZE = 8
# Long appends start their write-back early, a slice at a time.
SLICE_SIZE = 16 << 20

Span = tuple[int, memoryview | bytes]


class TemplateRun(NamedTuple):
    """Encoded records whose positions are not known yet.

    `queues` are the distinct (topic, queue id) pairs; a record's PHYSICALOFFSET field is its index
    there and its QUEUEOFFSET field the ordinal within that queue.
    """

    queues: tuple[tuple[bytes, int], ...]
    records: bytes | bytearray | memoryview


class CommitLog:
    """`position` is where the next record goes; readers see bytes below `readable`."""

    def __init__(self, segments: SegmentSequence, position: int) -> None:
        self._segments = segments
        self._position = position

    @property
    def segments(self) -> SegmentSequence:
        """The files, for the flush service and retention."""
        return self._segments

    @property
    def position(self) -> int:
        """End of everything appended."""
        return self._position

    @property
    def start(self) -> int:
        """First position still kept."""
        return self._segments.start

    def reserve(self, size: int, largest: int, count: int) -> None:
        """Make sure that `count` records of `size` bytes in all can be appended.

        Raises `DiskFull` when the files that this takes cannot be had; nothing is written then.
        """
        last = self._segments.last
        room = 0 if last is None else last.size - last.wrote
        if size + BLANK_SIZE > room:
            # Each file may leave up to one record's room unused at its end.
            usable = max(self._segments.size - largest - BLANK_SIZE, 1)
            self._segments.reserve(min(count, -(-size // usable)))

    def reserve_until(self, end: int) -> None:
        """The same for a layout that is known to end at log position `end`."""
        missing = end - self._segments.next_base
        if missing > 0:
            self._segments.reserve(-(-missing // self._segments.size))

    def append(
        self,
        batch: ColumnBatch,
        next_offsets: memoryview,
        store_timestamp: int,
        *,
        together: int = 0,
    ) -> tuple[int, int]:
        """Append every row; returns the position of the first record and the end position.

        `next_offsets` (one native int64 per queue of the batch) moves on. `together`, when given,
        is the size of the whole batch: it then goes into one file. The caller has called `reserve`.
        """
        segment = self._room_for(together + BLANK_SIZE if together else 0)
        row = 0
        start = -1
        while row < batch.count:
            next_row, wrote = encode_batch(
                batch,
                row,
                next_offsets,
                store_timestamp,
                segment.target,
                segment.wrote,
                segment.size,
                segment.base + segment.wrote,
            )
            if next_row > row:
                start = segment.base + segment.wrote if start < 0 else start
                self._stored(segment, wrote)
                row = next_row
            if row < batch.count:
                segment = self._roll(segment)
        self._segments.prepare_ahead()
        return start, self._position

    def append_run(
        self,
        run: TemplateRun,
        next_offsets: memoryview,
        store_timestamp: int,
        store_host: bytes,
        after_slice: Callable[[], None],
    ) -> None:
        """Append template records; `after_slice` is called after each `SLICE_SIZE` or so."""
        segment = self._room_for(0)
        start = 0
        while start < len(run.records):
            limit = min(segment.size, segment.wrote + SLICE_SIZE)
            taken, wrote = self._relocate(
                run, start, next_offsets, store_timestamp, store_host, segment, limit
            )
            if taken == start and limit < segment.size:
                limit = segment.size
                taken, wrote = self._relocate(
                    run, start, next_offsets, store_timestamp, store_host, segment, limit
                )
            if taken > start:
                self._stored(segment, wrote)
                start = taken
                after_slice()
            if start < len(run.records) and limit == segment.size:
                segment = self._roll(segment)

    @staticmethod
    def _relocate(
        run: TemplateRun,
        start: int,
        next_offsets: memoryview,
        store_timestamp: int,
        store_host: bytes,
        segment: Segment,
        limit: int,
    ) -> tuple[int, int]:
        return relocate_run(
            run.records,
            start,
            next_offsets,
            store_timestamp,
            store_host,
            segment.target,
            segment.wrote,
            limit,
            segment.base + segment.wrote,
        )

    def spans(self, start: int, end: int, *, cold_below: int) -> list[Span]:
        """The bytes of `[start, end)`, one piece per file.

        Pieces below `cold_below` are read with `pread`, so that a page that is not in memory does
        not stall everyone through the map; the others are the map itself.
        """
        pieces: list[Span] = []
        position = start
        while position < end:
            segment = self._segments.find(position)
            if segment is None:
                break
            until = min(end, segment.base + segment.committed)
            if until <= position:
                break
            if position < cold_below:
                data = segment.file.read(position - segment.base, until - position)
                pieces.append((position, data))
            else:
                pieces.append((segment.base, segment.view))
            position = segment.base + segment.size
        return pieces

    def _room_for(self, size: int) -> Segment:
        segment = self._segments.last
        if segment is None or segment.wrote == segment.size:
            segment = self._segments.roll()
        elif size > segment.size - segment.wrote:
            segment = self._roll(segment)
        return segment

    def _roll(self, segment: Segment) -> Segment:
        """End the file with a blank record and go on in the next one."""
        rest = segment.size - segment.wrote
        if rest:
            BLANK.pack_into(segment.target, segment.wrote, rest, BLANK_MAGIC)
            if segment.buffered and rest > BLANK_SIZE:
                # A borrowed buffer holds bytes of an earlier file; they must not reach this one.
                segment.target[segment.wrote + BLANK_SIZE :] = bytes(rest - BLANK_SIZE)
            self._stored(segment, segment.size)
        return self._segments.roll()

    def _stored(self, segment: Segment, wrote: int) -> None:
        segment.stored(wrote)
        self._position = segment.base + wrote
