"""The one sequential log: appends batches and groups, rolls files, reads spans.

Owns the segments and the append position. Called by one thread only, which is why there is no
append lock. An append is written completely or not at all: the files that it needs are reserved
before its first byte is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from broker_core.codec.native import encode_batch, encode_message, relocate_run
from broker_core.codec.records.column_batch import ColumnBatch, encode_places
from broker_core.codec.records.record_layout import (
    BLANK_RESERVE,
    CHECK_CHECKSUMS,
    MAGIC_BLANK,
    SIZE_AND_MAGIC,
)
from broker_core.errors import CorruptRecord, MalformedBatch
from broker_core.storage.log.segment_file import Segment
from broker_core.storage.log.segment_sequence import SegmentSequence, log_file_path
from broker_core.storage.staging.staged_run import PrivateMemory, StagedRun

# Long appends start their write-back early, a slice at a time.
SLICE_SIZE = 8 << 20
LARGE_SIZE = 256 << 10
# Upper bound of a record's size beside its body and its property text.
ROW_OVERHEAD_MAX = 512
SCRATCH_SIZE = 512 << 10
# Larger appends are written, not stored through the map: a store to a page costs a fault now, and
# an interrupt of the other processors when the page is synced.
WRITTEN_SIZE_MIN = 16 << 10
# Reason of damage where the bytes are not even an invalid record.
NO_RECORD = "no record where one is expected"

Span = tuple[int, memoryview | bytes]
Produced = tuple[int, int]
# Whole records that were just written: a buffer, their size in it, and their position in the log.
Written = Callable[[memoryview, int, int], None]
# (rows done so far, buffer, start, limit, log position) -> (rows done now, end in the buffer)
Producer = Callable[[int, memoryview, int, int, int], Produced]


class TemplateRun(NamedTuple):
    """Encoded records whose positions are not known yet.

    `queues` are the distinct (topic, queue id) pairs; a record's PHYSICALOFFSET field is its index
    there and its QUEUEOFFSET field the ordinal within that queue.
    """

    queues: tuple[tuple[bytes, int], ...]
    records: bytes | bytearray | memoryview

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return len(self.records)

    def load(self, _memory: PrivateMemory | None = None) -> bytes | bytearray | memoryview:
        """The records; they are in memory already."""
        return self.records


RecordRun = TemplateRun | StagedRun


class CommitLog:
    """`position` is where the next record goes; readers see bytes below `readable`."""

    def __init__(
        self,
        segments: SegmentSequence,
        position: int,
        check_level: int = CHECK_CHECKSUMS,
        on_written: Written | None = None,
    ) -> None:
        """`on_written` gets rows that went through a buffer, not those stored through the map."""
        self._segments = segments
        self.position = position
        """End of the appended bytes; set by this class only. Read by every put."""
        self.check_level = check_level
        """How strictly records are checked when they are read."""
        self._scratch = memoryview(b"")
        self._memory = PrivateMemory()
        self._sliced = position
        self.written_total = 0
        """Bytes that were written to files instead of stored through their maps."""
        self._on_written: Written = _ignore if on_written is None else on_written

    @property
    def segments(self) -> SegmentSequence:
        """The files, for the flush service and retention."""
        return self._segments

    @property
    def start(self) -> int:
        """The first position that retention has not removed."""
        return self._segments.start

    def reserve(self, size: int, largest: int, count: int) -> None:
        """Make sure that `count` records, `size` bytes in total, can be appended.

        Raises `DiskFull` when the files cannot be created; nothing is written then.
        """
        last = self._segments.last
        room = 0 if last is None else last.size - last.wrote
        if size + BLANK_RESERVE > room:
            # Each file may leave up to one record's room unused at its end.
            usable = max(self._segments.size - largest - BLANK_RESERVE, 1)
            self._segments.reserve(min(count, -(-size // usable)))

    def prepare_room(self, size: int, done: Callable[[], object]) -> bool:
        """Request files for `size` more bytes; False when there is nothing to wait for."""
        missing = self.position + size - self._segments.next_base
        # Each file may leave some room unused at its end.
        usable = self._segments.size - self._segments.size // 64
        return missing > 0 and self._segments.prepare(-(-missing // usable), done)

    def reserve_until(self, end: int) -> None:
        """`reserve` for a layout that ends at log position `end`."""
        missing = end - self._segments.next_base
        if missing > 0:
            self._segments.reserve(-(-missing // self._segments.size))

    def append(
        self,
        batch: ColumnBatch,
        next_offsets: memoryview,
        store_timestamp: int,
        size: int,
        *,
        together: bool = False,
    ) -> tuple[int, int]:
        """Append every row, `size` bytes in all; returns start and end position.

        `next_offsets` (one native int64 per queue of the batch) moves on. `together` puts the
        whole batch into one file. The caller has called `reserve`.
        """

        def encode(row: int, out: memoryview, at: int, limit: int, position: int) -> Produced:
            return encode_batch(batch, row, next_offsets, store_timestamp, out, at, limit, position)

        self._room_for(size + BLANK_RESERVE if together else 0)
        start = self._produce(
            encode, batch.count, large=size > LARGE_SIZE, written=self._on_written
        )
        self._segments.prepare_ahead()
        return start, self.position

    def append_message(self, store_timestamp: int, queue_offset: int, *fields: Any) -> int:
        """Append one message if it fits into the current file; returns its start, or -1.

        `fields` are those of `encode_message` from the topic on.
        """
        segment = self._segments.last
        if segment is None:
            return -1
        wrote = segment.wrote
        start = segment.base + wrote
        end = encode_message(
            segment.target, wrote, segment.size, start, store_timestamp, queue_offset, *fields
        )
        if end == 0:
            return -1
        segment.stored(end)
        self.position = segment.base + end
        return start

    def stored(self, segment: Segment, end: int) -> int:
        """Records up to `end` were written into the last segment; returns the new position.

        For callers that encode a message straight into it, as `append_message` does.
        """
        segment.stored(end)
        self.position = position = segment.base + end
        return position

    def has_room_for(self, batch: ColumnBatch) -> bool:
        """Whether all rows fit into the current file; may be False although they just fit."""
        segment = self._segments.last
        return segment is not None and segment.size - segment.wrote > _size_max(batch)

    def append_rows(
        self, batch: ColumnBatch, next_offsets: memoryview, store_timestamp: int
    ) -> tuple[int, int]:
        """Append as many rows as fit into the current file; returns their number and start.

        `next_offsets` advances by the appended rows.
        """
        segment = self._segments.last
        if segment is None:
            return 0, -1
        wrote = segment.wrote
        start = segment.base + wrote
        size_max = _size_max(batch)
        if WRITTEN_SIZE_MIN < size_max < SCRATCH_SIZE and not segment.buffered:
            scratch = self._scratch_buffer()
            limit = min(SCRATCH_SIZE, segment.size - wrote)
            count, end = encode_batch(
                batch, 0, next_offsets, store_timestamp, scratch, 0, limit, start
            )
            if count:
                segment.write(scratch[:end])
                self.written_total += end
                self.position = start + end
                self._on_written(scratch, end, start)
            return count, start
        try:
            count, end = encode_batch(
                batch, 0, next_offsets, store_timestamp, segment.target, wrote, segment.size, start
            )
        except MalformedBatch:
            # Rows before the invalid one were written: after a crash they would look stored.
            end = min(wrote + size_max, segment.size)
            segment.target[wrote:end] = bytes(end - wrote)
            raise
        if count:
            segment.stored(end)
            self.position = segment.base + end
        return count, start

    def begin_slices(self) -> None:
        """Start to count the slices of a long group."""
        self._sliced = self.position

    def append_run(
        self,
        run: RecordRun,
        next_offsets: memoryview,
        store_timestamp: int,
        store_host: bytes,
        after_slice: Callable[[], None],
    ) -> None:
        """Append template records; `after_slice` is called after each `SLICE_SIZE` or so.

        Counted from `begin_slices`, over all runs of a group.
        """
        records, places = run.load(self._memory), encode_places(run.queues)

        def relocate(start: int, out: memoryview, at: int, limit: int, position: int) -> Produced:
            return relocate_run(
                records,
                start,
                next_offsets,
                store_timestamp,
                store_host,
                out,
                at,
                limit,
                position,
                places,
            )

        size = len(records)
        self._room_for(0)
        self._produce(relocate, size, large=size > LARGE_SIZE, after_slice=after_slice)

    def _produce(
        self,
        produce: Producer,
        until: int,
        *,
        large: bool,
        after_slice: Callable[[], None] | None = None,
        written: Written | None = None,
    ) -> int:
        """Store the records of `produce`, rolling files as needed; returns the first position.

        Small appends are stored through the map. Large ones are made in a buffer that stays in the
        processor's cache and written from there: twice as fast as faulting in fresh mapped pages.
        """
        if large:
            self._scratch_buffer()
        segment = self._room_for(0)
        done, first = 0, -1
        while done < until:
            at = segment.wrote
            room = segment.size - at
            limit = min(room, len(self._scratch)) if large and not segment.buffered else 0
            taken, end = done, 0
            if limit:
                taken, end = produce(done, self._scratch, 0, limit, segment.base + at)
                if taken > done:
                    segment.write(self._scratch[:end])
                    self.written_total += end
                    if written is not None:
                        written(self._scratch, end, segment.base + at)
            if taken == done and limit < room:
                taken, end = produce(done, segment.target, at, segment.size, segment.base + at)
                limit = room
                if taken > done:
                    segment.stored(end)
            if taken > done:
                first = segment.base + at if first < 0 else first
                self.position = segment.base + segment.wrote
                done = taken
            if done < until and limit == room:
                segment = self._roll(segment)
            if after_slice is not None:
                self._end_slice(after_slice)
        return first

    def wrote_until(self, position: int, after_slice: Callable[[], None]) -> None:
        """Note that other code has written records up to `position` into the last file."""
        segment = self._segments.last
        assert segment is not None
        segment.written(position - segment.base)
        self.written_total += position - self.position
        self.position = position
        self._end_slice(after_slice)

    def _end_slice(self, after_slice: Callable[[], None]) -> None:
        if self.position - self._sliced >= SLICE_SIZE:
            self._sliced = self.position
            after_slice()

    def take_back(self, position: int, first: int, end: int) -> None:
        """Cut the log at `position`; the bytes after it, up to `end`, were not read yet.

        They are zeroed durably: those from `first` on before the others.
        """
        late = [segment for segment in self._segments.all if segment.base + segment.size > position]
        for low, high in ((first, end), (position, first)):
            for segment in reversed(late):
                segment.clear(max(low - segment.base, 0), min(high - segment.base, segment.size))
        for segment in late:
            segment.end_at(max(position - segment.base, 0))
        self._segments.unroll(position)
        self.position = self._sliced = position

    def begin_at(self, position: int) -> None:
        """Let a log without files begin at `position`, the start of a file."""
        if self._segments.all or position % self._segments.size:
            raise AssertionError(f"the log has files, or none can start at {position}")
        self._segments.begin_at(position)
        self.position = position

    def append_copy(self, data: memoryview) -> None:
        """Store bytes of another log that is the same up to here, blanks included."""
        while data:
            segment = self._room_for(0)
            room = segment.size - segment.wrote
            segment.write(data[:room])
            data = data[room:]
            end = segment.base + segment.wrote
            self.written_total += end - self.position
            self.position = end
        self._segments.prepare_ahead()

    def spans(self, start: int, end: int, *, cold_below: int) -> list[Span]:
        """The bytes of `[start, end)`, one piece per file.

        Pieces below `cold_below` are read with `pread`, so that a page fault does not stall other
        threads; the others are the map itself.
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

    def read_into(self, position: int, target: memoryview) -> bool:
        """Fill `target` from a log position on; False if one file does not have all of it."""
        segment = self._segments.find(position)
        if segment is None or position - segment.base + len(target) > segment.committed:
            return False
        return segment.file.read_into(position - segment.base, target) == len(target)

    def clear_behind(self) -> None:
        """Zero the bytes right after the end of the log, where the next open looks for a record.

        Damage to other unused space is harmless; there it would look like a damaged record.
        """
        last = self._segments.last
        if last is None:
            return
        size = min(BLANK_RESERVE, last.size - last.wrote)
        if any(last.file.read(last.wrote, size)):
            last.file.write(last.wrote, bytes(size))
            last.file.sync()

    def corrupt_record(self, position: int, reason: str) -> CorruptRecord:
        """The error for damage at `position`, with the path of the file; empty: no record there."""
        path = log_file_path(position - position % self._segments.size)
        return CorruptRecord(path, position, reason or NO_RECORD)

    def _scratch_buffer(self) -> memoryview:
        if not self._scratch:
            self._scratch = memoryview(bytearray(SCRATCH_SIZE))
        return self._scratch

    def _room_for(self, size: int) -> Segment:
        segment = self._segments.last
        if segment is None or segment.wrote == segment.size:
            segment = self._segments.roll()
        elif size > segment.size - segment.wrote:
            segment = self._roll(segment)
        return segment

    def _roll(self, segment: Segment) -> Segment:
        """End the file with a blank record and continue in the next one."""
        rest = segment.size - segment.wrote
        if rest:
            SIZE_AND_MAGIC.pack_into(segment.target, segment.wrote, rest, MAGIC_BLANK)
            if segment.buffered and rest > BLANK_RESERVE:
                # A reused buffer holds bytes of an earlier file, which must not get into this one.
                segment.target[segment.wrote + BLANK_RESERVE :] = bytes(rest - BLANK_RESERVE)
            segment.stored(segment.size)
            self.position = segment.base + segment.size
        return self._segments.roll()


def _size_max(batch: ColumnBatch) -> int:
    """Upper bound of the size of a batch in the log."""
    texts = b"" if batch.properties is None else batch.properties[0]
    size = len(memoryview(batch.body[0])) + len(memoryview(texts))
    return size + batch.count * ROW_OVERHEAD_MAX


def _ignore(_data: memoryview, _size: int, _position: int) -> None:
    """Default of `on_written`."""
