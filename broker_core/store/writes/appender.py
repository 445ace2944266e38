"""Puts: checks, queue offsets, store time, the append, and the wait for the acknowledgement.

Owns the queue counters. A batch is appended completely or not at all; a refusal is a status.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from operator import add, sub
from typing import Any

from broker_core.codec.native import count_records, encode_put, join_sent_replies, list_message_ids
from broker_core.codec.records.column_batch import ColumnBatch, check_batch
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.message_properties import KEYS, TAGS, encode_properties
from broker_core.codec.records.record_layout import (
    REQUIRE_CHECKSUM,
    SKIP_CHECKSUMS,
    TRANSACTION_PREPARED,
)
from broker_core.config import StoreConfig
from broker_core.errors import (
    DiskFull,
    InvalidArgument,
    MalformedBatch,
    MalformedRecord,
    StagingRefused,
    StoreClosed,
)
from broker_core.protocol_codes import PutStatus
from broker_core.runtime.clock import Clock
from broker_core.storage.derived.consume_queue_set import QueueKey
from broker_core.storage.log.append_group import (
    GROUP_QUEUE,
    NOTE_SIZE_MAX,
    GroupLayout,
    HeaderBatch,
    Inspected,
    inspect_runs,
    plan_group,
)
from broker_core.storage.log.commit_log import CommitLog, RecordRun
from broker_core.storage.log.group_writer import GroupWriter, NumberedRun, Stamp
from broker_core.store.running_flags import RunningFlags
from broker_core.store.scheduler import StoreScheduler
from broker_core.store.store_stats import StoreStats
from broker_core.store.writes.acknowledgements import Acknowledgements
from broker_core.store.writes.argument_checks import check_numbers, encoded_text
from broker_core.store.writes.message import (
    Message,
    check_message,
    encode_topic,
    message_batch,
    one_row,
)
from broker_core.store.writes.put_checks import AppendPressure, PutChecks
from broker_core.store.writes.put_result import PutResult
from broker_core.store.writes.queue_counters import QueueCounters

# Looked up once: access to enum members is slow, as is creating named tuples.
_PUT_OK = PutStatus.PUT_OK
_new_tuple = tuple.__new__

KNOWN_QUEUES_MAX = 100_000


class Appender:
    """`MessageStore.writes`: the only way into the log of a master. Owner thread only."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        counters: QueueCounters,
        flags: RunningFlags,
        stats: StoreStats,
        scheduler: StoreScheduler,
        acks: Acknowledgements,
        groups: GroupWriter,
        fence: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        # Looked up once: every put needs them.
        self._segments = log.segments
        self._wall_ms, self._monotonic = clock.wall_ms, clock.monotonic
        self._counters = counters
        self._stats = stats
        self._scheduler = scheduler
        self._appended = scheduler.appended
        self.acks = acks
        self._groups = groups
        self._fence = fence
        self.pressure = AppendPressure(clock, config.page_cache_busy_timeout_ms)
        self._flags = flags
        self._checks = PutChecks(config, flags, self.pressure)
        self._crc = config.append_record_crc
        self._body_max = config.message_size_max
        # Queues that accepted a message before: their names are valid and this store is a master.
        self._known: dict[tuple[str, int], QueueKey] = {}
        self.store_host = encode_host((config.store_host, config.store_port))

    def append(self, message: Message) -> PutResult:
        """One message, without waiting for the disk; PUT_OK means only that it is in the log.

        For a known queue, checks that cannot fail are skipped.
        """
        # One long function: a call for each step would take longer than the step itself.
        pressure, segment = self.pressure, self._segments.last
        if type(message) is not Message or segment is None or not self._flags.writeable:
            return self._append_checked(message)
        properties = message[5]
        try:
            queue = self._known.get((message[0], message[2]))
        except TypeError:
            # An unhashable value is not a topic.
            queue = None
        if (
            queue is None
            or (pressure.has_stalled and pressure.busy)
            or (properties and not _is_plain(properties))
        ):
            return self._append_checked(message)
        text = encode_properties(properties) if properties else b""
        counters, host = self._counters, self.store_host
        now_ms = self._wall_ms()
        # As `stamp` does.
        if now_ms > counters.timestamp:
            counters.timestamp = now_ms
        timestamp = counters.timestamp
        queue_offset = counters.next.get(queue, 0)
        wrote = segment.wrote
        start = segment.base + wrote
        started = self._monotonic()
        end = encode_put(
            message,
            text,
            self._body_max,
            segment.target,
            wrote,
            segment.size,
            start,
            timestamp,
            queue_offset,
            queue[0],
            host,
            now_ms,
            self._crc,
        )
        if not end:
            return self._append_checked(message)
        end = self._log.stored(segment, end)
        counters.next[queue] = queue_offset + 1
        duration = self._monotonic() - started
        if duration > pressure.limit_s:
            pressure.stalled(duration)
        self._stats.put_one(queue[0], end - start, duration * 1000)
        self._appended()
        return _new_tuple(PutResult, (_PUT_OK, "", start, end, queue_offset, 1, timestamp, host))

    def append_text(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        text: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = b"",
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> PutResult:
        """`append` for a server: properties as received text, hosts as bytes.

        The caller has checked the types; sizes and names are checked here.
        """
        queue = self._known.get((topic, queue_id))
        if (
            queue is not None
            and not sys_flag & TRANSACTION_PREPARED
            and len(body) <= self._config.message_size_max
            and self._flags.writeable
            and not self.pressure.busy
        ):
            result = self._append_known(
                queue,
                body,
                text,
                flag,
                sys_flag,
                born_timestamp,
                born_host,
                reconsume_times,
                prepared_offset,
            )
            if result is not None:
                return result
        queue = (encode_topic(topic), queue_id)
        result = self._append_batch(
            ColumnBatch(
                1,
                (queue,),
                None,
                one_row(body),
                None,
                None,
                one_row(text),
                flag,
                sys_flag,
                born_timestamp,
                born_host,
                self.store_host,
                reconsume_times,
                prepared_offset,
                self._crc,
            )
        )
        self._note_known(result, topic, queue)
        return result

    def _append_known(
        self,
        queue: QueueKey,
        body: bytes | memoryview,
        text: bytes,
        flag: int,
        sys_flag: int,
        born: int | None,
        born_host: bytes,
        reconsumed: int,
        prepared: int,
    ) -> PutResult | None:
        """Append to a known queue; None when `_append_batch` must handle the message."""
        host = self.store_host
        now_ms = self._clock.wall_ms()
        timestamp = self._counters.stamp(now_ms)
        queue_offset = self._counters.next.get(queue, 0)
        born = now_ms if born is None else born
        started = self._clock.monotonic()
        try:
            start = self._log.append_message(
                timestamp,
                queue_offset,
                *queue,
                body,
                text,
                flag,
                sys_flag,
                born,
                born_host,
                host,
                reconsumed,
                prepared,
                self._crc,
            )
        except MalformedBatch:
            return None
        if start < 0:
            return None
        self._counters.next[queue] = queue_offset + 1
        end = self._log.position
        self._stats.put_one(queue[0], end - start, self.pressure.took(started) * 1000)
        self._appended()
        return _new_tuple(PutResult, (_PUT_OK, "", start, end, queue_offset, 1, timestamp, host))

    def append_rows(self, batch: ColumnBatch) -> PutResult | None:
        """Append rows of known topics, as many as fit into the current file.

        Skips the checks of names and roles. None when not even the first row could be appended:
        `append_batch` reports the reason.
        """
        if not self._flags.writeable or self.pressure.busy:
            return None
        queues = batch.queues
        before = self._counters.next_offsets(queues)
        offsets = before[:]
        timestamp = self._counters.stamp(self._clock.wall_ms())
        started = self._clock.monotonic()
        try:
            count, start = self._log.append_rows(
                batch if batch.append_crc or not self._crc else batch._replace(append_crc=True),
                memoryview(offsets),
                timestamp,
            )
        except MalformedBatch:
            return None
        except OSError as error:
            # `append_batch` reports the failure from now on.
            self._fence(error)
            return None
        if not count:
            return None
        self._counters.advance(queues, offsets)
        end = self._log.position
        ms = self.pressure.took(started) * 1000
        counts = [count] if len(queues) == 1 else list(map(sub, offsets, before))
        self._stats.put_rows(queues, counts, end - start, ms)
        self._appended(is_rows=True)
        return _new_tuple(
            PutResult, (_PUT_OK, "", start, end, before[0], count, timestamp, self.store_host)
        )

    def append_rows_together(self, batch: ColumnBatch) -> PutResult | None:
        """Append all rows to a known queue, in the current file; None if they do not fit."""
        topic, queue_id = batch.queues[0]
        if (topic.decode(), queue_id) not in self._known or not self._log.has_room_for(batch):
            return None
        return self.append_rows(batch)

    def _note_known(self, result: PutResult, topic: str, queue: QueueKey) -> None:
        if result.ok and len(self._known) < KNOWN_QUEUES_MAX:
            self._known[topic, queue[1]] = queue

    def _append_checked(self, message: Message) -> PutResult:
        if self._flags.closed:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        check_message(message)
        queue = (encode_topic(message.topic), message.queue_id)
        now_ms = self._clock.wall_ms()
        batch = message_batch(message, queue, self.store_host, now_ms, self._crc)
        result = self._append_batch(batch)
        self._note_known(result, message.topic, queue)
        return result

    def append_batch(self, batch: ColumnBatch, *, together: bool = False) -> PutResult:
        """Append all rows or none; `together` keeps them in one file, as RocketMQ's batches."""
        check_batch(batch)
        return self._append_batch(batch, together=together)

    def _append_batch(self, batch: ColumnBatch, *, together: bool = False) -> PutResult:
        result = self._append(batch, together)
        self._stats.put_statuses[result.status] += 1
        if together and result.ok:
            queue = batch.queues[0]
            self._note_known(result, queue[0].decode(), queue)
        return result

    def inspect_runs(self, runs: tuple[RecordRun, ...]) -> Inspected:
        """Verify runs ahead of `append_group`, on any thread; raises `MalformedRecord`."""
        log = self._log
        return inspect_runs(
            runs,
            log.segments.size,
            len(self.store_host),
            log.check_level,
            self._config.message_size_max,
        )

    def append_group(
        self, runs: tuple[RecordRun, ...], note: Any, inspected: Inspected = ()
    ) -> PutResult:
        """Verify and lay out the group, reserve its files, then append it in one step."""
        if not isinstance(note, bytes) or len(note) > NOTE_SIZE_MAX:
            raise InvalidArgument(f"the note must be bytes, at most {NOTE_SIZE_MAX} of them")
        result = self._append_group(runs, note, inspected)
        self._stats.put_statuses[result.status] += 1
        return result

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next message of a queue gets, visible or not."""
        check_numbers(queue_id=queue_id)
        self._flags.require_open()
        return self._counters.next.get((encoded_text("topic", topic), queue_id), 0)

    # What was stored

    def message_ids(self, result: PutResult) -> str:
        """Offset ids of a batch that was appended `together`, separated by commas."""
        # No check of the closed flag: syncs may complete while the store is closing.
        position = result.position
        segment = self._segments.find(position)
        if segment is None:
            raise StoreClosed("the store is closed; open it again")
        return list_message_ids(
            segment.target, position - segment.base, result.message_count, self.store_host, position
        )

    def replies(
        self, result: PutResult, marks: bytes, texts: bytes, constants: bytes, ending: bytes
    ) -> bytes:
        """The answers to what `append_rows` stored; see `codec/reference/send_burst.py`."""
        segment = self._segments.find(result.position)
        assert segment is not None
        return join_sent_replies(
            segment.target,
            result.position - segment.base,
            result.message_count,
            result.store_host,
            result.position,
            marks,
            texts,
            constants,
            ending,
        )

    def counted(
        self, result: PutResult, index: bytes, queue_count: int
    ) -> tuple[tuple[int, int], ...]:
        """Number and size of the records of each queue that `append_rows` stored.

        `index` is the queue index of its batch.
        """
        segment = self._segments.find(result.position)
        assert segment is not None
        return count_records(
            segment.target, result.position - segment.base, result.message_count, index, queue_count
        )

    # Acknowledgements

    async def put(self, message: Message) -> PutResult:
        """Append and wait until the flush mode's guarantee is met."""
        result = self.append(message)
        return await self.acknowledged(result) if message.wants_wait else result

    async def acknowledged(self, result: PutResult) -> PutResult:
        """Wait until the guarantee of the flush mode is met; the status tells whether it is."""
        acks = self.acks
        if not result.ok or acks.puts_at_once:
            return result
        status = await acks.puts.wait(result.end_position)
        return result if status is _PUT_OK else result._replace(status=status)

    def when_acknowledged(self, result: PutResult, callback: Callable[[PutStatus], object]) -> None:
        """`acknowledged` without a future: `callback(status)`, at once with ASYNC_FLUSH."""
        acks = self.acks
        if not result.ok or acks.puts_at_once:
            callback(result.status)
        else:
            acks.puts.when(result.end_position, callback)

    def _append(self, batch: ColumnBatch, together: bool) -> PutResult:
        checks = self._checks
        if not batch.append_crc and self._log.check_level == REQUIRE_CHECKSUM:
            # One record without a checksum would make damage harder to detect.
            batch = batch._replace(append_crc=True)
        refusal = checks.refuse_store() or checks.refuse_topics(batch.queues)
        refusal = refusal or checks.refuse_busy()
        if refusal is not None:
            return refusal
        measured = checks.measure(batch)
        if isinstance(measured, PutResult):
            return measured
        size, largest = measured
        if together and size > self._config.record_size_max:
            return PutResult(
                PutStatus.MESSAGE_ILLEGAL,
                f"a batch of {size} bytes cannot be kept together; "
                f"the limit is {self._config.record_size_max}",
            )
        started = self._clock.monotonic()
        try:
            self._log.reserve(size, size if together else largest, 1 if together else batch.count)
        except DiskFull as error:
            return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, str(error))
        offsets = self._counters.next_offsets(batch.queues)
        first_offset = offsets[0]
        timestamp = self._counters.stamp(self._clock.wall_ms())
        try:
            start, end = self._log.append(
                batch, memoryview(offsets), timestamp, size, together=together
            )
        except OSError as error:
            return self._broken(error)
        self._counters.advance(batch.queues, offsets)
        self._stats.put(batch.queues, batch.count, size, self.pressure.took(started) * 1000)
        self._appended(is_rows=together)
        return self._stored(start, end, first_offset, batch.count, timestamp)

    def _append_group(
        self, runs: tuple[RecordRun, ...], note: bytes, inspected: Inspected
    ) -> PutResult:
        checks = self._checks
        refusal = checks.refuse_store() or checks.refuse_busy()
        for run in runs:
            refusal = refusal or checks.refuse_topics(run.queues)
        if refusal is not None:
            return refusal
        header_of = HeaderBatch(
            self.store_host, self._clock.wall_ms(), self._config.append_record_crc
        )
        log = self._log
        try:
            layout = plan_group(
                runs,
                note,
                log.position,
                log.segments.size,
                header_of,
                # Checksums of inspected runs were compared on another thread.
                SKIP_CHECKSUMS if inspected else log.check_level,
                self._config.message_size_max,
                inspected,
            )
        except (MalformedRecord, StagingRefused) as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, str(error))
        if inspected and tuple(run.counts for run in inspected) != layout.counts:
            return PutResult(
                PutStatus.MESSAGE_ILLEGAL, "a run differs from the one that was inspected"
            )
        size = layout.end - layout.start
        if size > self._config.group_size_max:
            remark = f"the group has {size} bytes, group_size_max is {self._config.group_size_max}"
            return PutResult(PutStatus.MESSAGE_ILLEGAL, remark)
        try:
            log.reserve_until(layout.end)
        except DiskFull as error:
            return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, str(error))
        before = log.position
        queues = {GROUP_QUEUE, *(queue for run in runs for queue in run.queues)}
        counted = {queue: self._counters.next.get(queue) for queue in queues}
        try:
            return self._write_group(runs, layout)
        except OSError as error:
            return self._broken(error)
        except (MalformedRecord, StagingRefused) as error:
            # A staged file was changed meanwhile. No reader has seen any part of the group.
            return self._take_back(layout, before, counted, error)

    def _take_back(
        self,
        layout: GroupLayout,
        position: int,
        counted: dict[QueueKey, int | None],
        reason: Exception,
    ) -> PutResult:
        """Restore the log to its state before a group whose runs have changed."""
        try:
            self._groups.take_back(position, layout.start + layout.header_size, layout.end)
        except OSError as error:
            return self._broken(error)
        self._counters.restore(counted)
        return PutResult(PutStatus.MESSAGE_ILLEGAL, str(reason))

    def _broken(self, error: Exception) -> PutResult:
        """Fence the store: after a failed write only recovery can tell what was written."""
        self._fence(error)
        return PutResult(PutStatus.UNKNOWN_ERROR, f"the log cannot be written: {error}")

    def _write_group(self, runs: tuple[RecordRun, ...], layout: GroupLayout) -> PutResult:
        counters = self._counters
        timestamp = counters.stamp(self._clock.wall_ms())
        started = self._clock.monotonic()
        offsets = counters.next_offsets((GROUP_QUEUE,))
        group_offset = offsets[0]
        start, _ = self._log.append(
            layout.header, memoryview(offsets), timestamp, layout.header_size
        )
        counters.advance((GROUP_QUEUE,), offsets)
        numbered, expected = [], []
        for run, counts in zip(runs, layout.counts, strict=True):
            offsets = counters.next_offsets(run.queues)
            after = array("q", map(add, offsets, counts))
            numbered.append(NumberedRun(run, offsets))
            expected.append(after)
            counters.advance(run.queues, after)
        self._groups.write(numbered, Stamp(timestamp, self.store_host))
        if [run.offsets for run in numbered] != expected:
            raise MalformedRecord(0, "a run has changed while it was written")
        if (start, self._log.position) != (layout.start, layout.end):
            raise AssertionError(
                f"group at {start}..{self._log.position}, planned {layout.start}..{layout.end}"
            )
        size = layout.end - layout.start
        self._stats.put((), layout.record_count, size, self.pressure.took(started) * 1000)
        self._appended()
        return self._stored(start, layout.end, group_offset, layout.record_count, timestamp)

    def _stored(
        self, start: int, end: int, queue_offset: int, count: int, timestamp: int
    ) -> PutResult:
        return PutResult(
            PutStatus.PUT_OK, "", start, end, queue_offset, count, timestamp, self.store_host
        )


def _is_plain(properties: Any) -> bool:
    """Whether the properties are valid, apart from what their encoder checks."""
    return type(properties) is dict and TAGS not in properties and KEYS not in properties
