"""Composition root of a store: builds the parts, connects them, takes them down.

`MessageStore` is the face of this. Everything runs on the owner's thread but for the two workers:
one waits for the disk, one prepares files and writes checkpoints.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

from broker_core.codec.record_columns import list_message_ids
from broker_core.config import StoreConfig
from broker_core.errors import CorruptStore, RmqError, StoreClosed
from broker_core.flush.durable_ack import DurableAcks
from broker_core.flush.flush_service import FlushService
from broker_core.flush.replicated_ack import ReplicaGate, ReplicatedAcks
from broker_core.protocol_codes import BrokerRole, FlushDiskType
from broker_core.runtime.clock import Clock
from broker_core.runtime.lane_worker import start_worker
from broker_core.runtime.watermark import Waiter
from broker_core.runtime.worker import InlineWorker, ThreadWorker, WorkerSlot
from broker_core.storage.file_system import DiskUsage, FileSystem, StoreFile
from broker_core.storage.fresh_pages import FreshPages
from broker_core.storage.group_writer import GroupWriter
from broker_core.storage.run_marks import mark_stopped, take_lock
from broker_core.storage.staging import BLOCK_SIZE_MAX, StagingArea
from broker_core.store.appender import Appender
from broker_core.store.cleaning import Cleaning
from broker_core.store.held_back import first_behind, hold_back
from broker_core.store.message_reader import MessageReader
from broker_core.store.opening import OpenedStore, Opening
from broker_core.store.queue_counters import QueueCounters
from broker_core.store.replica_log import ReplicaLog
from broker_core.store.running_flags import Running, RunningFlags
from broker_core.store.store_stats import StoreStats
from broker_core.store.upkeep import Upkeep

_logger = logging.getLogger(__name__)

GROUP_TIMEOUT_MS = 600_000
# Nobody waits to be told of new messages, and readers look before they read: so many appends share
# one walk over the log.
DISPATCH_DELAY_S = 0.002

Acks = DurableAcks | ReplicatedAcks


class StoreParts:
    """The open parts of one store.

    `is_awaited` is asked after an append: whether someone waits to be told of it.
    """

    # Whether new messages are to be made visible, soon.
    dispatch_due = False
    _dispatch_timer: asyncio.TimerHandle | None = None
    # Only where appends wait for nothing else: on an event loop.
    _fresh_pages: FreshPages | None = None
    # Behind this are ordinary messages only. Of others (delays, halves of transactions) the broker
    # itself wants to know before it answers more.
    _others_until = 0

    def __init__(
        self,
        file_system: FileSystem,
        config: StoreConfig,
        clock: Clock,
        lock: StoreFile,
        opened: OpenedStore,
        staging: StagingArea,
        workers: tuple[WorkerSlot, WorkerSlot],
    ) -> None:
        self._file_system = file_system
        self._lock = lock
        self._state_file = opened.state_file
        self._flush_worker, self._background = workers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_awaited: Callable[[], bool] = lambda: True
        self._pump_due = False
        self.owns_file_system = False
        self.config = config
        self.clock = clock
        self.is_async = config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        self.report = opened.report
        self.log = opened.log
        self.queues = opened.queues
        self.index = opened.index
        self.dispatcher = opened.dispatcher
        self.derived = opened.derived
        self.flags = RunningFlags()
        self.stats = StoreStats()
        self.staging = staging
        self.flush = FlushService(self.log, opened.state_file, config, clock, self._flush_worker)
        self.flush.on_progress(self._progressed)
        self.appender = Appender(
            config,
            clock,
            self.log,
            QueueCounters(self.queues, self.dispatcher.store_timestamp),
            self.flags,
            self.stats,
            appended=self._appended,
            groups=self._make_group_writer(),
            fence=self.flush.fence,
        )
        flushed = self.flush.flushed
        self.acks: Acks = DurableAcks(flushed, clock, config.sync_flush_timeout_ms)
        self.answers_at_once = self.is_async
        self.groups_at_once = self.is_async and not config.group_waits_for_disk
        # Straight to the watermark where what is durable is a matter of this disk alone.
        self.when_durable = self._when_safe if self.groups_at_once else flushed.when
        self.replica_log = self._make_replica_log()
        # Hundreds of megabytes take their time; the answer to a group must still be sure.
        self.group_acks: Acks = DurableAcks(flushed, clock, GROUP_TIMEOUT_MS)
        self.upkeep = self._make_upkeep(opened)
        heal_queue, heal_index = self.upkeep.heal_queue, self.upkeep.heal_index
        self.reader = MessageReader(
            config, self.log, self.queues, self.index, heal_queue, heal_index
        )

    def _make_group_writer(self) -> GroupWriter:
        written = self.dispatcher.written
        self.log.on_written = written.note
        return GroupWriter(self.log, written, self._background, self.flush.start_writeback)

    def _make_replica_log(self) -> ReplicaLog:
        if self.config.broker_role is BrokerRole.SLAVE:
            self.dispatcher.limit_cuts = self.dispatcher.check_crc = True
            self.flush.note_limit = lambda: self.dispatcher.position
        return ReplicaLog(
            self.flush.state.store_id,
            self.log,
            self.flush,
            is_async=self.is_async,
            appended=self._appended,
            begun=self._begin_at,
        )

    @classmethod
    def open(
        cls, file_system: FileSystem, config: StoreConfig, clock: Clock, process_id: int
    ) -> StoreParts:
        """Lock the directory, recover it, build the parts."""
        lock = take_lock(file_system)
        try:
            workers = WorkerSlot(InlineWorker()), WorkerSlot(InlineWorker())
            # Only reads, and may fail: before anything is written or kept open.
            staging = StagingArea(
                file_system, clock, config.staging_size_max, config.staging_expiry_ms, workers[1],
                max(BLOCK_SIZE_MAX, 2 * config.message_size_max),
            )  # fmt: skip
            opened = Opening(file_system, config, clock, workers[1], process_id).run()
            return cls(file_system, config, clock, lock, opened, staging, workers)
        except BaseException:
            lock.close()
            raise

    def _make_upkeep(self, opened: OpenedStore) -> Upkeep:
        cleaning = Cleaning(
            self._file_system,
            self.config,
            self.clock,
            self.log,
            self.queues,
            self.index,
            self.derived,
            self.flush,
        )
        return Upkeep(
            self.config,
            self.clock,
            self.log,
            self.queues,
            self.index,
            self.dispatcher,
            self.derived,
            self.flush,
            cleaning,
            self._background,
            self.flags,
            self.stats,
            opened.delays,
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Exchange the inline workers for threads that report to `loop`."""
        if self._loop is not None:
            return
        self._loop = loop
        config = self.config
        if self.is_async and config.flush_timed and not config.transient_pool_enable:
            # Only time makes a sync due, and the timer looks at that.
            self.flush.pump_later = lambda: None
        else:
            self.flush.pump_later = self._pump_soon
        # Nobody but the master writes to a slave, and it waits for the answer.
        is_slave = self.config.broker_role is BrokerRole.SLAVE
        self._flush_worker.exchange(start_worker("rmq-flush", loop, waits_at_once=is_slave))
        self._background.exchange(ThreadWorker("rmq-background", loop.call_soon_threadsafe))
        self._fresh_pages = FreshPages(self.log, self._background, singly=not self.is_async)
        self.staging.on_growth = self._fresh_pages.expect
        self._schedule()

    async def prepare_room(self, size: int) -> None:
        """Files and pages for `size` more bytes; what cannot be had, the append will tell."""
        made = asyncio.Event()
        if self.log.prepare_room(size, made.set):
            await made.wait()
        made.clear()
        if self._fresh_pages is not None and self._fresh_pages.make(size, made.set):
            await made.wait()

    def tick(self) -> None:
        """Everything that depends on time; each part knows whether it is due."""
        self.flush.tick()
        self.acks.tick()
        self.group_acks.tick()
        if self.flush.failure is None and self.upkeep.tick():
            self.staging.expire()

    def durable_offset(self, topic: bytes, queue_id: int) -> int:
        """First offset that a power cut could take."""
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return 0
        end, flushed = self.reader.end_of(queue), self.flush.flushed.position
        if flushed >= self.dispatcher.position:
            return end
        return min(first_behind(queue, self.upkeep.heal_queue, flushed), end)

    def require_replicas(self, gate: ReplicaGate, timeout_ms: int) -> None:
        """From now on a put also waits for slaves, and readers see what they have."""
        disk = None if self.is_async else self.acks
        assert not isinstance(disk, ReplicatedAcks)
        self.acks = ReplicatedAcks(disk, gate, self.clock, timeout_ms)
        self.group_acks = ReplicatedAcks(
            None
            if self.groups_at_once
            else DurableAcks(self.flush.flushed, self.clock, GROUP_TIMEOUT_MS),
            gate,
            self.clock,
            timeout_ms,
        )
        self.answers_at_once = False
        self.when_durable = self._when_safe
        self.upkeep.confirmed = gate.confirmed
        self.dispatcher.limit_cuts = True

    def hold_back(self, position: int, shown_topics: Collection[str]) -> None:
        """Hide from readers what ends behind `position`, until the slaves have all there is now."""
        until = self.dispatcher.position
        if position < until:
            heal = self.upkeep.heal_queue
            held = hold_back(self.log, self.queues, heal, position, until, shown_topics)
            self.reader.held_back = held

    def hold_nothing_back(self) -> None:
        """Readers see all that the queues have."""
        held, self.reader.held_back = self.reader.held_back, None
        if held is not None:
            self.dispatcher.announce(held.ends)

    def shows_groups(self) -> bool:
        """Whether a group that is appended is as safe as was asked for; it is visible then."""
        if self.groups_at_once and self.answers_at_once:
            self._dispatch()
            return True
        return False

    def _when_safe(self, position: int, callback: Waiter) -> None:
        """Call back once the disk has it, and the slaves when puts wait for them."""
        confirmed = self.upkeep.confirmed
        if self.groups_at_once and self.flush.failure is None:
            if confirmed is None:
                callback(None)
            else:
                confirmed.when(position, callback)
            return
        if confirmed is None:
            self.flush.flushed.when(position, callback)
            return

        def flushed(failure: BaseException | None) -> None:
            if failure is None:
                confirmed.when(position, callback)
            else:
                callback(failure)

        self.flush.flushed.when(position, flushed)

    def confirmed_moved(self) -> None:
        """The slaves have more: show it, soon."""
        held, confirmed = self.reader.held_back, self.upkeep.confirmed
        if held is not None and confirmed is not None and confirmed.position >= held.until:
            self.hold_nothing_back()
        if self._loop is None:
            self._dispatch()
        else:
            self._dispatch_soon()

    def _begin_at(self, position: int) -> None:
        self.log.begin_at(position)
        self.flush.begin_at(position)
        self.dispatcher.position = position

    def message_ids(self, position: int, count: int) -> str:
        """Offset ids of `count` records that follow each other in one file."""
        segment = self.log.segments.find(position)
        if segment is None:
            raise StoreClosed("the store is closed; open it again")
        host = self.appender.store_host
        return list_message_ids(segment.target, position - segment.base, count, host, position)

    def statistics(self) -> dict[str, Any]:
        """Counters and positions."""
        return {
            **self.stats.snapshot(),
            "log_start": self.log.start,
            "log_end": self.log.position,
            "committed_position": self.flush.committed_position,
            "flushed_position": self.flush.flushed.position,
            "dispatched_position": self.dispatcher.position,
            "queues": len(self.queues),
            "staging_bytes": self.staging.size,
            "running_flags": self.flags.bits,
            "write_buffers_free": self.log.segments.free_buffers,
        }

    def disk_usage(self) -> DiskUsage:
        """Space on the partition of the store."""
        return self._file_system.usage()

    def close(self) -> None:
        """Clean stop when everything is well; otherwise release and leave `abort` in place."""
        for timer in (self._timer, self._dispatch_timer):
            if timer is not None:
                timer.cancel()
        self.flush.pump_later = None
        try:
            try:
                self._stop_threads()
            finally:
                # Nobody reads any more, so the queues may have all of it: a SYNC_MASTER that opens
                # it again holds back what its slaves have not (`hold_back`).
                self.upkeep.confirmed = None
                self._stop_cleanly()
        finally:
            self._release()

    def _stop_threads(self) -> None:
        """Their last reports wake producers, one of which may raise."""
        try:
            if self._loop is not None:
                self._flush_worker.exchange(InlineWorker())
        finally:
            if self._loop is not None:
                self._background.exchange(InlineWorker())
            self._loop = None
            self.staging.close()

    def _appended(self, *, is_rows: bool = False) -> None:
        if not is_rows:
            self._others_until = self.log.position
        self.flush.appended()
        if self.replica_log.listeners:
            self.replica_log.changed()
        if not self.is_async:
            return
        if self._loop is None:
            self.upkeep.dispatch()
        else:
            # Several appends of one wake-up share one walk over the log.
            self._dispatch_soon()

    def _pump_soon(self) -> None:
        if not self._pump_due and self._loop is not None:
            self._pump_due = True
            self._loop.call_soon(self._pump_once)

    def _pump_once(self) -> None:
        self._pump_due = False
        if self._loop is not None:
            self.flush.pump()

    def _dispatch_soon(self) -> None:
        loop, due = self._loop, self.dispatch_due
        if loop is None:
            return
        self.dispatch_due = True
        if self._can_wait():
            if not due:
                self._dispatch_timer = loop.call_later(DISPATCH_DELAY_S, self.catch_up)
        elif not due or self._dispatch_timer is not None:
            self._stop_dispatch_timer()
            loop.call_soon(self.catch_up)

    def _can_wait(self) -> bool:
        return self.dispatcher.position >= self._others_until and not self.is_awaited()

    def _stop_dispatch_timer(self) -> None:
        if self._dispatch_timer is not None:
            self._dispatch_timer.cancel()
            self._dispatch_timer = None

    def catch_up(self) -> None:
        """Do the dispatch that is due, if one is: readers find all that was answered."""
        if not self.dispatch_due:
            return
        self.dispatch_due = False
        self._stop_dispatch_timer()
        if self._loop is not None:
            self._dispatch()

    def _progressed(self) -> None:
        """The flush service moved or failed."""
        if self.flush.failure is not None:
            self.flags.set(Running.FENCED, True)
            return
        # First: a master's producers wait for what a slave reports, nobody for its queues.
        if self.replica_log.listeners:
            self.replica_log.changed()
        # A report that comes when the loop has ended, at the close, is the last one.
        has_turns = self._loop is not None and not self._loop.is_closed()
        if self.dispatcher.position < self.upkeep.visible_limit():
            if has_turns:
                # After the answers to producers; whoever reads before that is served all the same.
                self._dispatch_soon()
            else:
                self._dispatch()
        if self._loop is None or not has_turns:
            self.flush.note_when_idle()
        else:
            # After the producers that were just answered: most of them send again at once.
            self._loop.call_soon(self.flush.note_when_idle)

    def _dispatch(self) -> None:
        if self._fresh_pages is not None:
            self._fresh_pages.follow()
        try:
            self.upkeep.dispatch()
        except CorruptStore as error:
            self._stop_puts(error)

    def _schedule(self) -> None:
        if self._loop is not None:
            config = self.config
            period_ms = min(config.flush_interval_ms, config.commit_interval_ms, 200)
            self._timer = self._loop.call_later(period_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        try:
            self.tick()
        except RmqError as error:
            self._stop_puts(error)
        finally:
            self._schedule()

    def _stop_puts(self, error: RmqError) -> None:
        """Background work failed for good: say so and take no more puts, but go on reading."""
        _logger.error("the store takes no more messages: %s", error)
        if isinstance(error, CorruptStore):
            self.replica_log.problem = error
        self.flags.set(Running.NOT_WRITEABLE, True)

    def _stop_cleanly(self) -> None:
        if self.flush.failure is not None:
            return
        self.flush.flush_all()
        self.upkeep.dispatch()
        self.upkeep.retry_index()
        self.log.segments.remove_spares()
        if self.upkeep.complete:
            self.log.clear_behind()
            self.derived.save_closing()
            mark_stopped(self._file_system)

    def _release(self) -> None:
        self.log.segments.release()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self._state_file.close()
        self._lock.close()
        if self.owns_file_system:
            self._file_system.close()
