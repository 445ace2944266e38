"""Decides when a store pumps the flush service, dispatches and does its periodic work.

Without `start` everything happens inline, on the thread of the caller. After `start` two workers
run: one waits for the disk, one prepares files and writes checkpoints. The event loop then batches:
appends of one wake-up share one sync and one dispatch.

    append ─► flush.note_appended ─► pump ─► flush worker ─► flushed watermark ─► dispatch
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker_core.config import StoreConfig
from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.errors import CorruptStore, RmqError
from broker_core.flush.flush_service import FlushService
from broker_core.protocol_codes import BrokerRole, FlushDiskType
from broker_core.runtime.lane_worker import start_worker
from broker_core.runtime.worker import InlineWorker, ThreadWorker, WorkerSlot
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.log.page_prefault import PagePrefault
from broker_core.storage.staging.staging_area import StagingArea
from broker_core.store.running_flags import Running, RunningFlags
from broker_core.store.upkeep import Upkeep
from broker_core.store.visibility import Visibility
from broker_core.store.writes.acknowledgements import Acknowledgements

_logger = logging.getLogger(__name__)

# Delay of dispatch while no consumer waits for an arrival, so that many appends share one walk.
DISPATCH_DELAY_S = 0.002


class StoreScheduler:
    """Owner thread only."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        flush: FlushService,
        dispatcher: LogDispatcher,
        upkeep: Upkeep,
        visibility: Visibility,
        acks: Acknowledgements,
        staging: StagingArea,
        flags: RunningFlags,
        flush_worker: WorkerSlot,
        background: WorkerSlot,
    ) -> None:
        self._config = config
        self._log = log
        self._flush = flush
        self._dispatcher = dispatcher
        self._upkeep = upkeep
        self._visibility = visibility
        self._acks = acks
        self._staging = staging
        self._flags = flags
        self._flush_worker = flush_worker
        self._background = background
        self._is_async = config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        # Whether only time makes a sync due, so that the timer checks it.
        self._pumps_by_timer = (
            self._is_async and config.flush_timed and not config.transient_pool_enable
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._pump_due = False
        self._dispatch_due = False
        self._dispatch_timer: asyncio.TimerHandle | None = None
        # Only on an event loop, where appends wait for nothing else.
        self._page_prefault: PagePrefault | None = None
        # After this position there are ordinary messages only. Others (delayed messages, halves of
        # transactions) are dispatched at once, because the broker acts on them.
        self._others_until = 0
        self._is_awaited: Callable[[], bool] = lambda: True
        self.log_listeners: list[Callable[[], object]] = []
        """Called after an append and after progress of the disk."""
        self.log_problem: CorruptStore | None = None
        """Damage that dispatch has found in the log."""
        flush.flushed.subscribe(self._flush_moved)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Replace the inline workers by threads that report to `loop`, and start the timer."""
        if self._loop is not None:
            return
        self._loop = loop
        # Only the master writes to a slave, and it waits for the answer.
        is_slave = self._config.broker_role is BrokerRole.SLAVE
        self._flush_worker.exchange(start_worker("rmq-flush", loop, waits_at_once=is_slave))
        self._background.exchange(ThreadWorker("rmq-background", loop.call_soon_threadsafe))
        self._page_prefault = PagePrefault(self._log, self._background, singly=not self._is_async)
        self._staging.report_growth(self._page_prefault.expect)
        self._schedule_tick()

    def stop(self) -> None:
        """Stop timers and threads. Their last reports wake producers; a callback may raise."""
        for timer in (self._timer, self._dispatch_timer):
            if timer is not None:
                timer.cancel()
        self._stopping = True
        try:
            if self._loop is not None:
                self._flush_worker.exchange(InlineWorker())
        finally:
            if self._loop is not None:
                self._background.exchange(InlineWorker())
            self._loop = None
            self._staging.close()

    def delay_arrivals_unless(self, is_awaited: Callable[[], bool]) -> None:
        """Call `is_awaited` after appends; while it is false, arrivals may be reported later.

        Reads find everything that was acknowledged in either case.
        """
        self._is_awaited = is_awaited

    async def prepare_room(self, size: int) -> None:
        """Create files and pages for `size` more bytes; if that fails, the append reports it."""
        made = asyncio.Event()
        if self._log.prepare_room(size, made.set):
            await made.wait()
        made.clear()
        if self._page_prefault is not None and self._page_prefault.make(size, made.set):
            await made.wait()

    # Appends

    def appended(self, *, is_rows: bool = False) -> None:
        """The log has grown; `is_rows`: by ordinary messages that clients sent together."""
        if not is_rows:
            self._others_until = self._log.position
        if self._flush.note_appended():
            self._pump_soon()
        for listener in self.log_listeners:
            listener()
        if not self._is_async:
            return
        if self._loop is None:
            self._upkeep.dispatch()
        else:
            # Several appends of one wake-up share one walk over the log.
            self._schedule_dispatch()

    def _pump_soon(self) -> None:
        """Pump after all appends of this wake-up, so that they share one sync."""
        if self._loop is None or self._stopping:
            self._flush.pump()
        elif not self._pumps_by_timer and not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self._pump_once)

    def _pump_once(self) -> None:
        self._pump_due = False
        if self._loop is not None:
            self._flush.pump()

    def _flush_moved(self) -> None:
        """The flush service made progress or failed."""
        if self._flush.failure is not None:
            self._flags.set(Running.FENCED, True)
            return
        # Before dispatch: producers of a master wait for this slave's report, not for its queues.
        for listener in self.log_listeners:
            listener()
        # During close, the last report may arrive after the loop has ended.
        loop = self._loop if self._loop is not None and not self._loop.is_closed() else None
        if self._dispatcher.position < self._visibility.limit():
            if loop is not None:
                # After the answers to producers; a read that comes earlier dispatches first.
                self._schedule_dispatch()
            else:
                self.dispatch()
        if loop is None:
            self._flush.note_when_idle()
        else:
            # After the producers that were just answered, most of which send again at once.
            loop.call_soon(self._flush.note_when_idle)

    def flush(self) -> None:
        """Make everything appended durable and visible; raises `StoreFenced` when it cannot be."""
        self._flush.flush_all()
        self._upkeep.dispatch()

    # Dispatch

    def catch_up(self) -> None:
        """Dispatch what is due, so that a read finds everything that was acknowledged.

        The first step of every read. Raises `StoreClosed`.
        """
        if self._flags.closed:
            self._flags.require_open()
        if self._dispatch_due:
            self._dispatch_now()

    def dispatch_soon(self) -> None:
        """Readers may see more: on an event loop in its next turn, otherwise at once."""
        if self._loop is None:
            self.dispatch()
        else:
            self._schedule_dispatch()

    def dispatch(self) -> None:
        """Make everything visible that the flush mode allows; damage to the log stops puts."""
        if self._page_prefault is not None:
            self._page_prefault.follow()
        try:
            self._upkeep.dispatch()
        except CorruptStore as error:
            self._stop_puts(error)

    def _schedule_dispatch(self) -> None:
        loop, due = self._loop, self._dispatch_due
        if loop is None:
            return
        self._dispatch_due = True
        if self._can_wait():
            if not due:
                self._dispatch_timer = loop.call_later(DISPATCH_DELAY_S, self.dispatch_if_due)
        elif not due or self._dispatch_timer is not None:
            self._stop_dispatch_timer()
            loop.call_soon(self.dispatch_if_due)

    def _can_wait(self) -> bool:
        return self._dispatcher.position >= self._others_until and not self._is_awaited()

    def dispatch_if_due(self) -> None:
        """`catch_up` that also works on a closed store, where nothing is due."""
        if self._dispatch_due:
            self._dispatch_now()

    def _dispatch_now(self) -> None:
        self._dispatch_due = False
        self._stop_dispatch_timer()
        if self._loop is not None:
            self.dispatch()

    def _stop_dispatch_timer(self) -> None:
        if self._dispatch_timer is not None:
            self._dispatch_timer.cancel()
            self._dispatch_timer = None

    # Periodic work

    def tick(self) -> None:
        """Run the periodic work; each component checks whether its work is due."""
        self._flush.tick()
        self._acks.tick()
        if self._flush.failure is None and self._upkeep.tick():
            self._staging.expire()

    def _schedule_tick(self) -> None:
        if self._loop is not None:
            config = self._config
            period_ms = min(config.flush_interval_ms, config.commit_interval_ms, 200)
            self._timer = self._loop.call_later(period_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        try:
            self.tick()
        except RmqError as error:
            self._stop_puts(error)
        finally:
            self._schedule_tick()

    def _stop_puts(self, error: RmqError) -> None:
        """Background work failed permanently: refuse puts, continue to serve reads."""
        _logger.error("the store rejects puts: %s", error)
        if isinstance(error, CorruptStore):
            self.log_problem = error
        self._flags.set(Running.NOT_WRITEABLE, True)
