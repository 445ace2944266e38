"""The interface of a store: open, put, get, query, look up, close.

    .writes       appends and their acknowledgement        store/writes/appender.py
    .reads        by offset, position, time and key        store/reads/message_reader.py
    .groups       append groups and staged batches         store/groups/store_groups.py
    .replication  raw log, slaves, unreplicated tail       store/replication/store_replication.py
    .state        identity, positions, counters            store/store_status.py
    .scheduler    pumps, dispatches, ticks                 store/scheduler.py

The methods of this class call these. Owned by one thread. Without `start` a store works inline:
`flush` makes everything durable and visible on the caller's thread. After `start` it serves an
event loop: a flush thread waits for the disk, a background thread prepares files and writes
checkpoints, and `put` returns when the flush mode's guarantee is met.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.records.staged_block import StagedPart
from broker_core.config import StoreConfig
from broker_core.errors import InvalidArgument, StoreUnusable
from broker_core.flush.flush_service import FlushService
from broker_core.protocol_codes import BrokerRole, FlushDiskType, PutStatus
from broker_core.runtime.clock import Clock, SystemClock
from broker_core.runtime.worker import InlineWorker, WorkerSlot
from broker_core.storage.files.file_system import DiskUsage, FileSystem, StoreFile
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.storage.log.append_group import Inspected
from broker_core.storage.log.commit_log import RecordRun
from broker_core.storage.log.group_writer import GroupWriter
from broker_core.storage.staging.staging_area import BLOCK_SIZE_MAX, StagingArea
from broker_core.storage.state.lock_and_abort_files import mark_stopped, take_lock
from broker_core.store.disk_errors import names_disk_errors
from broker_core.store.groups.store_groups import StoreGroups
from broker_core.store.opening.opening import OpenedStore, Opening, RecoveryReport
from broker_core.store.reads.filtered_read import RecordFilter
from broker_core.store.reads.message_reader import TIME_MAX, GetResult, MessageReader
from broker_core.store.replication.replica_log import ReplicaLog
from broker_core.store.replication.store_replication import StoreReplication
from broker_core.store.retention_runner import RetentionRunner
from broker_core.store.running_flags import RunningFlags
from broker_core.store.scheduler import StoreScheduler
from broker_core.store.store_stats import StoreStats
from broker_core.store.store_status import StoreStatus
from broker_core.store.upkeep import Upkeep
from broker_core.store.visibility import Visibility
from broker_core.store.writes.acknowledgements import Acknowledgements
from broker_core.store.writes.appender import Appender
from broker_core.store.writes.argument_checks import encoded_text
from broker_core.store.writes.message import Message
from broker_core.store.writes.put_result import PutResult
from broker_core.store.writes.queue_counters import QueueCounters


class MessageStore:
    """See the module docstring. Only the `async` methods wait for more than the disk."""

    def __init__(
        self,
        file_system: FileSystem,
        config: StoreConfig,
        clock: Clock,
        lock: StoreFile,
        opened: OpenedStore,
        staging: StagingArea,
        workers: tuple[WorkerSlot, WorkerSlot],
        *,
        owns_file_system: bool,
    ) -> None:
        """Connect the parts of an opened store; call `open` instead."""
        self._file_system, self._owns_file_system = file_system, owns_file_system
        self._lock = lock
        self._opened = opened
        log, queues, index, dispatcher = opened.log, opened.queues, opened.index, opened.dispatcher
        flush_worker, background = workers
        is_async = config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        is_slave = config.broker_role is BrokerRole.SLAVE
        if is_slave:
            dispatcher.follow_copied_log()
        self._flags = flags = RunningFlags()
        stats = StoreStats()
        self._flush = flush = FlushService(
            log,
            opened.state_file,
            config,
            clock,
            flush_worker,
            note_limit=(lambda: dispatcher.position) if is_slave else None,
        )
        self._visibility = visibility = Visibility(flush, is_async=is_async)
        acks = Acknowledgements(config, clock, flush, visibility)
        retention = RetentionRunner(
            file_system, config, clock, log, queues, index, opened.derived, flush
        )
        self._upkeep = upkeep = Upkeep(
            config,
            clock,
            log,
            queues,
            index,
            dispatcher,
            opened.derived,
            flush,
            retention,
            background,
            flags,
            stats,
            opened.delays,
            visibility,
        )
        self.scheduler = scheduler = StoreScheduler(
            config,
            log,
            flush,
            dispatcher,
            upkeep,
            visibility,
            acks,
            staging,
            flags,
            flush_worker,
            background,
        )
        self.writes = Appender(
            config,
            clock,
            log,
            QueueCounters(queues, dispatcher.store_timestamp),
            flags,
            stats,
            scheduler,
            acks,
            GroupWriter(log, dispatcher.written, background, flush.start_writeback),
            flush.fence,
        )
        self.reads = MessageReader(
            config,
            clock,
            log,
            queues,
            index,
            dispatcher,
            flush,
            upkeep,
            visibility,
            scheduler,
            stats,
        )
        self.groups = StoreGroups(config, log, flush, acks, scheduler, self.writes, staging, flags)
        store_id = flush.state.store_id
        self._replication = StoreReplication(
            ReplicaLog(store_id, log, flush, dispatcher, scheduler, is_async=is_async),
            log,
            queues,
            dispatcher,
            upkeep,
            visibility,
            acks,
            scheduler,
            flags,
            stats,
        )
        self.state = StoreStatus(file_system, opened, flush, self.writes, staging, flags, stats)

    @classmethod
    def open(
        cls,
        root: str | Path | FileSystem,
        config: StoreConfig | None = None,
        *,
        clock: Clock | None = None,
    ) -> MessageStore:
        """Open the store in directory `root`; creates or recovers it if necessary."""
        if not isinstance(root, (str, Path)) and not hasattr(root, "boot_id"):
            raise InvalidArgument(f"root must be a path or a FileSystem, not {root!r:.80}")
        if config is not None and not isinstance(config, StoreConfig):
            raise InvalidArgument(f"config must be a StoreConfig, not {config!r:.80}")
        own = isinstance(root, (str, Path))
        file_system: Any = PosixFileSystem(root) if isinstance(root, (str, Path)) else root
        try:
            return cls._open(file_system, config or StoreConfig(), clock or SystemClock(), own)
        except BaseException as error:
            if own:
                file_system.close()
            if isinstance(error, OSError):
                raise StoreUnusable(f"the store cannot be opened: {error}") from error
            raise

    @classmethod
    def _open(
        cls, file_system: FileSystem, config: StoreConfig, clock: Clock, own: bool
    ) -> MessageStore:
        lock = take_lock(file_system)
        try:
            workers = WorkerSlot(InlineWorker()), WorkerSlot(InlineWorker())
            # First, because it only reads and may fail: nothing is written or open yet.
            staging = StagingArea(
                file_system,
                clock,
                config.staging_size_max,
                config.staging_expiry_ms,
                workers[1],
                max(BLOCK_SIZE_MAX, 2 * config.message_size_max),
            )
            opened = Opening(file_system, config, clock, workers[1], os.getpid()).run()
            return cls(
                file_system, config, clock, lock, opened, staging, workers, owns_file_system=own
            )
        except BaseException:
            lock.close()
            raise

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def start(self) -> None:
        """Serve the running event loop: start the threads and the periodic work."""
        self._flags.require_open()
        self.scheduler.start(asyncio.get_running_loop())

    @names_disk_errors
    def close(self) -> None:
        """Flush, dispatch, checkpoint, remove `abort`, release everything. Safe to call twice.

        A fenced store is only released: `abort` stays and the next open recovers it. Raises
        `StoreFenced` when the last flush fails; everything is released then, too.
        """
        if self._flags.closed:
            return
        self._flags.close()
        try:
            try:
                self.scheduler.stop()
            finally:
                # There are no readers left, so the whole log may be dispatched. A SYNC_MASTER that
                # opens it again hides the records that its slaves do not have.
                self._visibility.wait_for_slaves(None)
                self._stop_cleanly()
        finally:
            self._release()

    def _stop_cleanly(self) -> None:
        if self._flush.failure is not None:
            return
        opened = self._opened
        self.scheduler.flush()
        self._upkeep.retry_index()
        opened.log.segments.remove_spares()
        if self._upkeep.complete:
            opened.log.clear_behind()
            opened.derived.save_closing()
            mark_stopped(self._file_system)

    def _release(self) -> None:
        opened = self._opened
        opened.log.segments.release()
        opened.queues.close()
        if opened.index is not None:
            opened.index.close()
        opened.state_file.close()
        self._lock.close()
        if self._owns_file_system:
            self._file_system.close()

    # Puts

    def append(self, message: Message) -> PutResult:
        """Append without waiting for the disk; PUT_OK means only that the message is in the log."""
        return self.writes.append(message)

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
        return self.writes.append_text(
            topic,
            queue_id,
            body,
            text,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            reconsume_times,
            prepared_offset,
        )

    def append_batch(self, batch: ColumnBatch, *, together: bool = False) -> PutResult:
        """Append all rows or none; `together` keeps them in one file, as RocketMQ's batches."""
        return self.writes.append_batch(batch, together=together)

    # Not `async`, which would wrap the coroutine of `writes` in a second one.
    def put(self, message: Message) -> Coroutine[Any, Any, PutResult]:
        """Append and wait until the flush mode's guarantee is met."""
        return self.writes.put(message)

    async def put_batch(self, batch: ColumnBatch, *, together: bool = False) -> PutResult:
        """`put` for a column batch."""
        return await self.writes.acknowledged(self.writes.append_batch(batch, together=together))

    def put_now(self, message: Message) -> PutResult:
        """Append, flush and dispatch on this thread; for programs without an event loop."""
        result = self.writes.append(message)
        if result.ok:
            self.flush()
        return result

    def when_durable(
        self, result: PutResult, callback: Callable[[BaseException | None], None]
    ) -> None:
        """Call `callback(None)` once a group is durable, or with the error if it never will be.

        For a server that answers many requests per wake-up, without a task or future for each.
        """
        self.writes.acks.when_durable(result[3], callback)

    def when_acknowledged(self, result: PutResult, callback: Callable[[PutStatus], object]) -> None:
        """`acknowledged` without a future: `callback(status)`, at once with ASYNC_FLUSH."""
        self.writes.when_acknowledged(result, callback)

    def when_on_disk(
        self, result: PutResult, callback: Callable[[BaseException | None], None]
    ) -> None:
        """Call `callback(None)` once an append is synced, in every flush mode, or with the error.

        With ASYNC_FLUSH a sync starts now and not after its interval.
        """
        self.writes.acks.when_on_disk(result.end_position, callback)

    def acknowledged(self, result: PutResult) -> Coroutine[Any, Any, PutResult]:
        """Wait until an append is durable (SYNC_FLUSH); the status tells whether it is."""
        return self.writes.acknowledged(result)

    def message_ids(self, result: PutResult) -> str:
        """Offset ids of a batch that was appended `together`, separated by commas."""
        return self.writes.message_ids(result)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next message of a queue gets, visible or not."""
        return self.writes.next_offset(topic, queue_id)

    # Append groups and staging

    def append_group(
        self, runs: Sequence[RecordRun], note: bytes = b"", inspected: Inspected = ()
    ) -> PutResult:
        """Append the records of all runs as one unit; `inspected` comes from `inspect_runs`."""
        return self.groups.append(runs, note, inspected)

    def inspect_runs(self, runs: Sequence[RecordRun]) -> Inspected:
        """Verify runs ahead of `append_group`; on any thread. Raises `MalformedRecord`."""
        return self.groups.inspect_runs(runs)

    async def prepare_room(self, size: int) -> None:
        """Create the files that a group of `size` bytes needs, without blocking the event loop."""
        await self.groups.prepare_room(size)

    async def put_group(self, runs: Sequence[RecordRun], note: bytes = b"") -> PutResult:
        """Append a group and wait until all of it is durable, in every flush mode."""
        return await self.groups.acknowledged(self.groups.append(runs, note))

    async def publish(self, parts: Sequence[StagedPart], note: bytes = b"") -> PutResult:
        """Append sealed staged parts as one group and release their files once it is durable."""
        return await self.groups.publish(parts, note)

    def publish_now(self, parts: Sequence[StagedPart], note: bytes = b"") -> PutResult:
        """`publish` without an event loop."""
        return self.groups.publish_now(parts, note)

    async def group_acknowledged(self, result: PutResult) -> PutResult:
        """Wait until an appended group is durable and therefore visible."""
        return await self.groups.acknowledged(result)

    async def group_on_disk(self, result: PutResult) -> None:
        """Wait until a group is synced, in modes where `group_acknowledged` does not."""
        await self.groups.on_disk(result)

    def group_ranges(self, start: int, end: int) -> dict[tuple[str, int], tuple[int, int]]:
        """First and next offset of every queue in the append group at `[start, end)`."""
        return self.groups.group_ranges(start, end)

    @property
    def staging(self) -> StagingArea:
        """Parts of batches that are not published yet; on any thread. Raises `StoreClosed`."""
        return self.groups.staging

    # Flush and maintenance on demand

    @names_disk_errors
    def flush(self) -> None:
        """Make everything appended durable and visible; raises `StoreFenced` when it cannot be."""
        self.scheduler.catch_up()
        self.scheduler.flush()

    @names_disk_errors
    def set_retention(self, config: StoreConfig) -> None:
        """Apply the retention settings of `config` from now on; others are ignored."""
        self._flags.require_open()
        self._upkeep.set_retention(config)

    def clean(self, *, manual: bool = False) -> int:
        """Apply retention now; returns the log start. `manual` ignores the hour of the day."""
        self.scheduler.catch_up()
        return self._upkeep.clean(manual=manual)

    @names_disk_errors
    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic; returns how many. Its records go with retention."""
        self.scheduler.catch_up()
        return self._upkeep.delete_topic(encoded_text("topic", topic))

    def before_clean(self, save: Callable[[], object]) -> None:
        """Call `save()` before log files are removed; when it raises, they stay."""
        if not callable(save):
            raise InvalidArgument(f"save must be callable, not {save!r:.80}")
        self._flags.require_open()
        self._upkeep.before_clean.append(save)

    def on_arrival(self, listener: Callable[[bytes, int, int], None]) -> None:
        """Call `listener(topic, queue_id, max_offset)` when a queue has new readable messages."""
        if not callable(listener):
            raise InvalidArgument(f"listener must be callable, not {listener!r:.80}")
        self.scheduler.catch_up()
        self._opened.dispatcher.on_arrival(listener)

    # Reads

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
        """Records from a queue offset on; see `MessageReader.get`."""
        return self.reads.get(
            topic,
            queue_id,
            offset,
            count_max,
            size_max=size_max,
            tag_codes=tag_codes,
            record_filter=record_filter,
            verify=verify,
        )

    def read_columns(
        self, topic: str, queue_id: int, start: int, until: int, wanted: int
    ) -> dict[str, Any]:
        """Exactly `[start, until)` as column buffers; `wanted` is a mask of `column_names`."""
        return self.reads.read_columns(topic, queue_id, start, until, wanted)

    def message_at(self, position: int) -> MessageRecord | None:
        """The message whose record starts at a log position."""
        return self.reads.message_at(position)

    def record_at(self, position: int) -> bytes | None:
        """The stored bytes of the message whose record starts at a log position."""
        return self.reads.record_at(position)

    def query(
        self, topic: str, key: str, count_max: int = 32, begin_ms: int = 0, end_ms: int = TIME_MAX
    ) -> list[MessageRecord]:
        """Messages by key or unique key within a time range."""
        return self.reads.query(topic, key, count_max, begin_ms, end_ms)

    def query_some(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> tuple[list[MessageRecord], bool]:
        """`query` with limited work, for clients; and whether it has looked at everything."""
        return self.reads.query_some(topic, key, count_max, begin_ms, end_ms)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """First offset stored at or after a time."""
        return self.reads.offset_by_time(topic, queue_id, timestamp_ms)

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Readable offsets `[min, max)` of a queue; (0, 0) when there is none."""
        return self.reads.offsets(topic, queue_id)

    def durable_offset(self, topic: str, queue_id: int) -> int:
        """Offsets below this one survive a power cut, in every flush mode."""
        return self.reads.durable_offset(topic, queue_id)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Store time of one message in epoch milliseconds."""
        return self.reads.store_time(topic, queue_id, offset)

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """(position, size, tag code) of readable entries `[offset, offset + count)`."""
        return self.reads.units(topic, queue_id, offset, count)

    def prepared_offsets(self, start: int) -> Iterator[tuple[int, int]]:
        """(position, PREPARED TRANSACTION OFFSET) of visible records that have one.

        Records from log position `start` on, where one must begin, or from the log's first one.
        """
        return self.reads.prepared_offsets(start)

    def queues(self) -> list[tuple[str, int]]:
        """Every (topic, queue id) that holds or held messages."""
        return self.reads.queues()

    @property
    def replication(self) -> StoreReplication:
        """Raw log access and the effect of slaves on puts. Raises `StoreClosed`."""
        self._flags.require_open()
        return self._replication

    # State

    @property
    def boot_id(self) -> str:
        """Boot id of the machine."""
        return self.state.boot_id

    @property
    def store_id(self) -> str:
        """Identity of this log."""
        return self.state.store_id

    @property
    def is_async(self) -> bool:
        """Whether a put is acknowledged at once, before it is durable and copied."""
        return self.writes.acks.puts_at_once

    @property
    def store_host(self) -> bytes:
        """Address and port that records carry."""
        return self.writes.store_host

    @property
    def epoch(self) -> int:
        """Changes when messages that readers may have seen could be lost."""
        return self.state.epoch

    @property
    def recovery(self) -> RecoveryReport:
        """What opening found and did."""
        return self.state.recovery

    @property
    def log_range(self) -> tuple[int, int]:
        """First and end position of the log."""
        return self.state.log_range

    @property
    def flushed_position(self) -> int:
        """Everything below is durable."""
        return self.state.flushed_position

    @property
    def dispatched_position(self) -> int:
        """Everything below is visible to readers."""
        return self.state.dispatched_position

    @property
    def fenced(self) -> bool:
        """Whether a sync failed; then nothing is acknowledged any more."""
        return self.state.fenced

    def disk_usage(self) -> DiskUsage:
        """Space on the partition of the store."""
        return self.state.disk_usage()

    def stats(self) -> dict[str, Any]:
        """Counters since the store was opened."""
        return self.state.stats()
