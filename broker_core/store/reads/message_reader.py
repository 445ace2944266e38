"""Reads: by queue offset, as columns, by position, by time, by key.

Owns nothing. Every read first dispatches what is due (`catch_up`), so that it finds everything that
was acknowledged. Every record is verified against its checksums and its queue entry before it is
returned, unless the caller does that: damage is reported and never served. A queue file that fails
its checksum is rebuilt from the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple, TypeVar

from broker_core.codec.native import (
    adjacent_runs,
    check_record,
    choose_units,
    decode_columns,
    gather_records,
    new_buffer,
)
from broker_core.codec.records.message_properties import KEY_SEPARATOR, KEYS, UNIQ_KEY
from broker_core.codec.records.message_record import MessageRecord, decode_record
from broker_core.codec.records.record_layout import (
    BORN_HOST_IPV6,
    DAMAGE_ONLY,
    I32,
    I64,
    IPV6_EXTRA,
    PRE_BLANK_SIZE,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    UNIT,
    UNIT_SIZE,
)
from broker_core.codec.wire.bodies.local_range import LocalRange, StoreLayout
from broker_core.config import StoreConfig
from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.errors import CorruptRecord, InvalidArgument
from broker_core.flush.flush_service import FlushService
from broker_core.protocol_codes import GetStatus
from broker_core.runtime.clock import Clock
from broker_core.runtime.watermark import Waiter
from broker_core.storage.derived.consume_queue import ConsumeQueue, QueueDamaged
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet
from broker_core.storage.derived.message_index import IndexDamaged, MessageIndex
from broker_core.storage.log.commit_log import CommitLog
from broker_core.store.disk_errors import names_disk_errors
from broker_core.store.reads.filtered_read import FilteredRead, Limits, RecordFilter
from broker_core.store.reads.log_spans import spans_of
from broker_core.store.reads.prepared_offsets import prepared_offsets
from broker_core.store.replication.unreplicated_tail import first_behind
from broker_core.store.scheduler import StoreScheduler
from broker_core.store.store_stats import StoreStats
from broker_core.store.upkeep import Upkeep
from broker_core.store.visibility import Visibility
from broker_core.store.writes.argument_checks import check_integer, check_numbers, encoded_text

TIME_MAX = (1 << 63) - 1
# What one query of a client may cost: records that it reads, and index entries that it passes.
QUERY_CANDIDATES_MAX = 8_192
_QUERY_STEPS_MAX = 500_000
# Runs that are shorter on average are copied record by record.
_RUN_SIZE_MIN = 32 << 10
_RUNS_MAX = 256

Result = TypeVar("Result")


class GetResult(NamedTuple):
    """Outcome of a read by queue offset; `records` are the stored bytes, back to back."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    message_count: int = 0
    records: bytes | memoryview = b""
    last_position: int = -1

    def messages(self) -> list[MessageRecord]:
        """The records decoded one by one."""
        decoded = []
        start = 0
        while start < len(self.records):
            size = I32.unpack_from(self.records, start)[0]
            decoded.append(decode_record(self.records, start, limit=start + size))
            start += size
        return decoded


class MessageReader:
    """`MessageStore.reads`. Owner thread only."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueueSet,
        index: MessageIndex | None,
        dispatcher: LogDispatcher,
        flush: FlushService,
        upkeep: Upkeep,
        visibility: Visibility,
        scheduler: StoreScheduler,
        stats: StoreStats,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._flush = flush
        self._heal_queue = upkeep.heal_queue
        self._heal_index = upkeep.heal_index
        self._visibility = visibility
        self._end_of = visibility.end_of
        self._catch_up = scheduler.catch_up
        self._stats = stats

    # By queue offset

    @names_disk_errors
    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int | None = None,
        *,
        size_max: int | None = None,
        tag_codes: Collection[int] | None = None,
        record_filter: RecordFilter | None = None,
        verify: bool = True,
    ) -> GetResult:
        """Records from a queue offset on; the status says what to do when there are none.

        The default limits are `read_count_max` and `read_size_max` of the store. A `record_filter`
        selects by the properties of a message instead of its tag code. Without `verify`, records
        that are neighbours in the log are returned without checks: for callers that verify them
        and read those that fail again with `verify`.
        """
        self._catch_up()
        config = self._config
        count_max = config.read_count_max if count_max is None else count_max
        check_numbers(queue_id=queue_id, count_max=count_max)
        # Any integer is accepted: the status corrects offsets outside the queue.
        check_integer("offset", offset)
        if tag_codes is not None and not isinstance(tag_codes, Collection):
            raise InvalidArgument(f"tag_codes must be a collection, not {tag_codes!r:.80}")
        limit = config.read_size_max if size_max is None else size_max
        check_numbers(size_max=limit)
        started = self._clock.monotonic()
        result = self._get(
            _name(topic), queue_id, offset, count_max, limit, tag_codes, record_filter, verify
        )
        ms = (self._clock.monotonic() - started) * 1000
        self._stats.get(result.status, result.message_count, len(result.records), ms)
        return result

    def _get(
        self,
        topic: bytes,
        queue_id: int,
        offset: int,
        count_max: int,
        size_max: int,
        tag_codes: Collection[int] | None,
        record_filter: RecordFilter | None,
        verify: bool,
    ) -> GetResult:
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, self._end_of(queue)
        if high < offset <= queue.max_offset:
            # In the unreplicated tail: a reader that has read it before waits at its offset.
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        corrected = _corrected(offset, low, high)
        if corrected is not None:
            return GetResult(corrected[0], corrected[1], low, high)
        if record_filter is not None:
            return self._filtered(queue, offset, Limits(count_max, size_max), record_filter)
        visit_max = count_max if tag_codes is None else self._config.visited_units_max
        count = min(max(count_max, visit_max), high - offset)
        units = self._healed(queue, lambda: queue.read(offset, count))
        codes = None if tag_codes is None else array("i", tag_codes)
        runs, visited, filtered, removed = choose_units(
            units, self._log.start, count_max, size_max, codes
        )
        next_offset = offset + visited
        if not runs:
            removed = removed and not filtered
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
            return GetResult(status, next_offset, low, high)
        read = self._gather if verify else self._unverified
        parts = [
            read(units[start * UNIT_SIZE : end * UNIT_SIZE], offset + start) for start, end in runs
        ]
        count = sum(end - start for start, end in runs)
        last = UNIT.unpack_from(units, (runs[-1][1] - 1) * UNIT_SIZE)[0]
        records = parts[0] if len(parts) == 1 else b"".join(parts)
        return GetResult(GetStatus.FOUND, next_offset, low, high, count, records, last)

    def _filtered(
        self, queue: ConsumeQueue, offset: int, limits: Limits, record_filter: RecordFilter
    ) -> GetResult:
        low, high = queue.min_offset, self._end_of(queue)
        count = min(max(limits.count_max, self._config.visited_units_max), high - offset)
        units = self._healed(queue, lambda: queue.read(offset, count))
        read = FilteredRead(units, offset, self._log.start, self._gather)
        read.run(record_filter, limits)
        if read.count:
            status = GetStatus.FOUND
        elif read.filtered or not read.visited:
            status = GetStatus.NO_MATCHED_MESSAGE
        else:
            status = GetStatus.MESSAGE_WAS_REMOVING
        following = offset + read.visited
        return GetResult(status, following, low, high, read.count, read.records, read.last_position)

    @names_disk_errors
    def read_columns(
        self, topic: str, queue_id: int, start: int, until: int, wanted: int
    ) -> dict[str, Any]:
        """Exactly `[start, until)` as column buffers; `wanted` is a mask of `column_names`."""
        self._catch_up()
        check_numbers(queue_id=queue_id, start=start, until=until, wanted=wanted)
        name = _name(topic)
        queue = self._queues.find(name, queue_id)
        low, high = (queue.min_offset, self._end_of(queue)) if queue is not None else (0, 0)
        if queue is None or not low <= start <= until <= high:
            raise InvalidArgument(
                f"offsets [{start}, {until}) of {name.decode('ascii', 'replace')}-{queue_id} are "
                f"not all readable: it holds [{low}, {high})"
            )
        units = self._healed(queue, lambda: queue.read(start, until - start))
        spans = spans_of(self._log, units, self._cold_below())
        level = self._log.check_level | DAMAGE_ONLY
        try:
            columns = decode_columns(spans, units, start, queue_id, name, wanted, level)
        except CorruptRecord as error:
            raise self._named(error) from error
        self._stats.get(GetStatus.FOUND, until - start, 0)
        return columns

    @names_disk_errors
    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """(position, size, tag code) of readable entries `[offset, offset + count)`."""
        check_numbers(queue_id=queue_id, offset=offset, count=count)
        self._catch_up()
        queue = self._queues.find(_name(topic), queue_id)
        if queue is None or not queue.min_offset <= offset < self._end_of(queue):
            return []
        count = min(count, self._end_of(queue) - offset)
        units = self._healed(queue, lambda: queue.read(offset, count))
        return list(UNIT.iter_unpack(units))

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Readable offsets `[min, max)` of a queue; (0, 0) when there is none."""
        check_numbers(queue_id=queue_id)
        self._catch_up()
        queue = self._queues.find(_name(topic), queue_id)
        return (0, 0) if queue is None else (queue.min_offset, self._end_of(queue))

    def queues(self) -> list[tuple[str, int]]:
        """Every (topic, queue id) that holds or held messages."""
        self._catch_up()
        return sorted((q.topic.decode("ascii"), q.queue_id) for q in self._queues)

    @names_disk_errors
    def durable_offset(self, topic: str, queue_id: int) -> int:
        """Offsets below this one survive a power cut, in every flush mode."""
        check_numbers(queue_id=queue_id)
        self._catch_up()
        queue = self._queues.find(_name(topic), queue_id)
        if queue is None:
            return 0
        end, flushed = self._end_of(queue), self._flush.flushed.position
        if flushed >= self._dispatcher.position:
            return end
        return min(first_behind(queue, self._heal_queue, flushed), end)

    def when_visible_is_durable(self, callback: Waiter) -> None:
        """Call `callback(None)` once all that is visible now is durable, or with the failure.

        With SYNC_FLUSH it is already; with ASYNC_FLUSH the next sync starts now instead of after
        its interval. For readers that store offsets: a power cut cannot remove what they have read.
        """
        self._catch_up()
        position, flush = self._dispatcher.position, self._flush
        if flush.flushed.position < position:
            flush.flush_soon()
        flush.flushed.when(position, callback)

    @names_disk_errors
    def local_range(self, directory: str, topic: str, queue_id: int) -> LocalRange:
        """Bounds for a reader in another process on this host that reads the files itself.

        The files do not show what is visible, so the reader needs these bounds. Writes the units of
        the queue (without a sync), so that everything below `max_offset` is in the files.
        """
        self._catch_up()
        queue = self._queues.find(_name(topic), queue_id)
        low, high = (0, 0)
        if queue is not None:
            queue.write_out()
            low, high = queue.min_offset, self._end_of(queue)
        log, state = self._log, self._flush.state
        layout = StoreLayout(
            directory,
            state.store_id,
            state.epoch,
            state.boot_id,
            log.segments.size,
            self._config.consume_queue_file_size,
            log.check_level,
        )
        return LocalRange(layout, log.start, low, high)

    # By log position

    @names_disk_errors
    def message_at(self, position: int) -> MessageRecord | None:
        """The message whose record starts at a log position."""
        check_numbers(position=position)
        self._catch_up()
        return self._at(position) if position < self._dispatcher.position else None

    def _at(self, position: int) -> MessageRecord | None:
        """The record that starts at a log position; None for a position outside the log.

        Inside the log a position without a valid record cannot be told from damage, so it is
        reported as such.
        """
        segment = self._log.segments.find(position)
        if segment is None or position >= segment.base + segment.committed:
            return None
        start = position - segment.base
        try:
            return decode_record(
                segment.view,
                start,
                limit=segment.committed,
                position=position,
                check_crc=self._log.check_level,
            )
        except CorruptRecord as error:
            raise self._named(error) from error

    @names_disk_errors
    def record_at(self, position: int) -> bytes | None:
        """The stored bytes of the message whose record starts at a log position."""
        check_numbers(position=position)
        self._catch_up()
        if position >= self._dispatcher.position:
            return None
        record, tail = self._at(position), self._visibility.unreplicated_tail
        if record is None:
            return None
        segment = self._log.segments.find(position)
        assert segment is not None
        start = position - segment.base
        size = I32.unpack_from(segment.view, start)[0]
        if tail is not None and tail.hides(position + size, record.topic):
            return None
        return bytes(segment.view[start : start + size])

    @names_disk_errors
    def prepared_offsets(self, start: int) -> Iterator[tuple[int, int]]:
        """(position, PREPARED TRANSACTION OFFSET) of visible records that have one.

        Records from log position `start` on, where one must begin, or from the log's first one.
        """
        check_numbers(start=start)
        self._catch_up()
        return prepared_offsets(self._log, max(start, self._log.start), self._dispatcher.position)

    # By time and by key

    @names_disk_errors
    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Store time of one message in epoch milliseconds."""
        check_numbers(queue_id=queue_id, offset=offset)
        self._catch_up()
        queue = self._queues.find(_name(topic), queue_id)
        return None if queue is None else self._store_time(queue, offset)

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int | None:
        unit = self._healed(queue, lambda: queue.unit(offset))
        if unit is None or unit[1] == PRE_BLANK_SIZE:
            return None
        segment = self._log.segments.find(unit[0])
        if segment is None:
            return None
        start = unit[0] - segment.base
        try:
            # Verified: a wrong time would silently lead to a wrong offset.
            limit = min(start + unit[1], segment.committed)
            check_record(segment.view, start, limit, unit[0], self._log.check_level)
        except CorruptRecord as error:
            raise self._named(error) from error
        sys_flag = I32.unpack_from(segment.view, start + SYS_FLAG_AT)[0]
        shift = IPV6_EXTRA if sys_flag & BORN_HOST_IPV6 else 0
        return int(I64.unpack_from(segment.view, start + STORE_TIMESTAMP_AT + shift)[0])

    @names_disk_errors
    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """First offset stored at or after a time; the end when there is none."""
        check_numbers(queue_id=queue_id, timestamp_ms=timestamp_ms)
        self._catch_up()
        queue = self._queues.find(_name(topic), queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, self._end_of(queue)
        while low < high:
            middle = (low + high) // 2
            stored_ms = self._store_time(queue, middle)
            if stored_ms is not None and stored_ms < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    @names_disk_errors
    def query(
        self, topic: str, key: str, count_max: int = 32, begin_ms: int = 0, end_ms: int = TIME_MAX
    ) -> list[MessageRecord]:
        """Messages by key or unique key within a time range, oldest first."""
        self._catch_up()
        check_numbers(count_max=count_max, begin_ms=begin_ms, end_ms=end_ms)
        name = encoded_text("key", key)
        return self._query(_name(topic), name, count_max, (begin_ms, end_ms))[0]

    def query_some(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> tuple[list[MessageRecord], bool]:
        """`query` with limited work, and whether it has looked at everything.

        Senders choose keys, and can choose any number of keys with one hash.
        """
        self._catch_up()
        check_numbers(count_max=count_max, begin_ms=begin_ms, end_ms=end_ms)
        limits = (QUERY_CANDIDATES_MAX, _QUERY_STEPS_MAX)
        name = encoded_text("key", key)
        return self._query(_name(topic), name, count_max, (begin_ms, end_ms), limits)

    def _query(
        self,
        topic: bytes,
        key: bytes,
        count_max: int,
        times: tuple[int, int],
        limits: tuple[int, int] = (1 << 62, 1 << 62),
    ) -> tuple[list[MessageRecord], bool]:
        """Records, and whether the limits of candidates and of steps were not reached."""
        if self._index is None:
            return [], True
        count_max = min(count_max, self._config.index_query_max)
        begin_ms, end_ms = times
        candidates_max, steps = limits
        found: list[MessageRecord] = []
        # Hashes collide: compare the records, and read more candidates until there are enough.
        seen, asked = 0, 4 * count_max
        while True:
            positions, is_complete = self._positions(self._index, topic, key, asked, times, steps)
            for position in positions[seen:]:
                if position < self._log.start or len(found) == count_max:
                    continue
                record = self._at(position)
                if record is None or not begin_ms <= record.store_timestamp <= end_ms:
                    continue
                if _has_key(record, topic, key):
                    found.append(record)
            if len(found) == count_max or len(positions) < asked or not is_complete:
                break
            if asked >= candidates_max:
                is_complete = False
                break
            seen, asked = len(positions), min(8 * asked, candidates_max)
        found.sort(key=lambda record: record.physical_offset)
        return found, is_complete

    def _positions(
        self,
        index: MessageIndex,
        topic: bytes,
        key: bytes,
        count: int,
        times: tuple[int, int],
        steps: int,
    ) -> tuple[list[int], bool]:
        """Candidates by hash. Retried after each rebuild of a damaged file, newest file first."""
        while True:
            try:
                return index.query_some(topic, key, count, *times, steps)
            except IndexDamaged as damage:
                self._heal_index(damage.position)

    def _gather(self, units: bytes, queue_offset: int) -> bytes:
        spans = spans_of(self._log, units, self._cold_below())
        try:
            return gather_records(spans, units, queue_offset, self._log.check_level | DAMAGE_ONLY)
        except CorruptRecord as error:
            raise self._named(error) from error

    def _unverified(self, units: bytes, queue_offset: int) -> bytes | memoryview:
        """Records in long runs of neighbours, read in place; `_gather` for others."""
        runs = adjacent_runs(units, _RUNS_MAX)
        size = sum(run[1] for run in runs)
        if not runs or size < len(runs) * _RUN_SIZE_MIN:
            return self._gather(units, queue_offset)
        records = new_buffer(size)
        at = 0
        for position, run_size in runs:
            if not self._log.read_into(position, records[at : at + run_size]):
                return self._gather(units, queue_offset)
            at += run_size
        return records.toreadonly()

    def _cold_below(self) -> int:
        return self._log.position - self._config.hot_window_size

    def _healed(self, queue: ConsumeQueue, read: Callable[[], Result]) -> Result:
        try:
            return read()
        except QueueDamaged:
            self._heal_queue(queue)
            return read()

    def _named(self, error: CorruptRecord) -> CorruptRecord:
        return self._log.corrupt_record(error.position, error.reason)


def _name(topic: str) -> bytes:
    return encoded_text("topic", topic)


def _corrected(offset: int, low: int, high: int) -> tuple[GetStatus, int] | None:
    """Status and next offset when nothing can be read at `offset`."""
    if high == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetStatus.OFFSET_OVERFLOW_BADLY, high
    return None


def _has_key(record: MessageRecord, topic: bytes, key: bytes) -> bool:
    if record.topic.encode("ascii") != topic:
        return False
    properties = record.properties
    wanted = key.decode("utf-8", "replace")
    return wanted == properties.get(UNIQ_KEY) or wanted in properties.get(KEYS, "").split(
        KEY_SEPARATOR
    )
