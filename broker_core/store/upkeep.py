"""Maintains queues, index and disk: dispatch, checkpoints, retention, rebuilds.

The scheduler calls `tick`, which does the work that is due. Errors of derived files lose no data,
because that is in the log; puts are refused until the files can be written again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker_core.config import PAGE_SIZE, StoreConfig
from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.dispatch.rebuild import rebuild_index, rebuild_queue
from broker_core.errors import CorruptStore, DiskFailed, DiskFull, StoreFenced
from broker_core.flush.flush_service import FlushService
from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import Worker
from broker_core.storage.derived.consume_queue import ConsumeQueue, QueueDamaged
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet
from broker_core.storage.derived.message_index import MessageIndex
from broker_core.storage.log.commit_log import CommitLog
from broker_core.store.opening.derived_files import DerivedFiles, DerivedSnapshot
from broker_core.store.retention_runner import RetentionRunner
from broker_core.store.running_flags import Running, RunningFlags
from broker_core.store.store_stats import StoreStats
from broker_core.store.visibility import Visibility

_logger = logging.getLogger(__name__)


class Upkeep:
    """Owner thread only, but for the checkpoint jobs of the background worker."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueueSet,
        index: MessageIndex | None,
        dispatcher: LogDispatcher,
        derived: DerivedFiles,
        flush: FlushService,
        retention: RetentionRunner,
        worker: Worker,
        flags: RunningFlags,
        stats: StoreStats,
        delays: memoryview,
        visibility: Visibility,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._derived = derived
        self._flush = flush
        self._retention = retention
        self._worker = worker
        self._flags = flags
        self._stats = stats
        self._delays = delays
        self._visibility = visibility
        self._saving = False
        # Called before log files are removed, to save what is only in them.
        self.before_clean: list[Callable[[], object]] = []
        self._index_lost_from: int | None = None
        self._last_ms = dict.fromkeys(("write_out", "checkpoint", "clean"), self._now_ms())

    @property
    def complete(self) -> bool:
        """Whether queues and index hold everything in the log."""
        return self._index_lost_from is None and self._dispatcher.position == self._log.position

    def dispatch(self) -> None:
        """Make everything visible that the flush mode allows."""
        try:
            limit = self._visibility.limit()
            # A group becomes visible as a whole. The limit can be inside a group: the slaves of a
            # sync master may have its beginning.
            durable = limit
            if self._config.group_waits_for_disk:
                durable = min(limit, self._flush.flushed.position)
            taken = self._dispatcher.dispatch(limit, durable, self._write_out_long_tails)
        except OSError as error:
            # The index cannot be written. It can be rebuilt from the log, so note the position and
            # continue without it.
            files = self._index.files if self._index is not None else []
            lost_from = files[-1].first_position if files else self._log.start
            self._lose_index(_unwritable(error), lost_from)
            self.dispatch()
            return
        self._stats.dispatched_messages += taken

    def _write_out_long_tails(self) -> None:
        """Limit the memory of queues: a long group may add megabytes to each of them."""
        try:
            self._queues.write_out_long_tails()
        except OSError as error:
            self._queue_error(error)

    def tick(self) -> bool:
        """Do the work that is due; returns True when staging should expire drafts, too."""
        self.retry_index()
        if self._due("write_out", self._config.consume_queue_flush_interval_ms):
            self._write_out(self._config.consume_queue_flush_least_pages * PAGE_SIZE)
        if self._due("checkpoint", self._config.dispatch_checkpoint_interval_ms):
            self._checkpoint()
        if self._due("clean", self._config.clean_interval_ms):
            self._clean_quietly()
            return True
        return False

    def set_retention(self, config: StoreConfig) -> None:
        """Apply the retention settings of `config` from now on."""
        self._retention.reconfigure(config)

    def clean(self, *, manual: bool) -> int:
        """Apply retention; returns the log start."""
        plan = self._retention.plan(manual=manual)
        if plan.disk_full is not None:
            self._flags.set(Running.DISK_FULL, plan.disk_full)
        nothing = plan.delete_before <= self._log.start
        if nothing or self._saving or self._index_lost_from is not None:
            return self._log.start
        self._flush.flush_all()
        self.dispatch()
        try:
            for save in self.before_clean:
                save()
            self._heal_oldest(plan.delete_before)
            start = self._retention.carry_out(plan, self._dispatcher.position)
        except OSError as error:
            self._queue_error(error)
            return self._log.start
        _logger.info("removed log files below %d because %s", start, plan.reason)
        return start

    def _heal_oldest(self, log_start: int) -> None:
        """Rebuild damaged queues: one that is never read must not block retention forever."""
        for queue in list(self._queues):
            try:
                queue.first_kept(log_start)
            except QueueDamaged:
                self.heal_queue(queue)

    def _clean_quietly(self) -> None:
        """Log errors of the periodic retention: they must not end the periodic work."""
        try:
            self.clean(manual=False)
        except (OSError, DiskFailed, StoreFenced) as error:
            _logger.warning("retention was not carried out: %s", error)

    def delete_topic(self, topic: bytes) -> int:
        """Remove every entry of a topic; durable at once, so that no crash brings it back."""
        self._flush.flush_all()
        self.dispatch()
        found = [queue for queue in self._queues if queue.topic == topic]
        if found:
            self._worker.run(lambda: None)
        for queue in found:
            queue.forget_entries()
            self._queues.mark_dirty(queue)
        if found:
            self._derived.save_now()
        return len(found)

    def heal_queue(self, queue: ConsumeQueue) -> None:
        """Rebuild a damaged queue from the log."""
        _logger.warning("rebuilding %s: its files do not match", queue.directory)
        rebuild_queue(self._log, self._queues, queue, self._dispatcher.position, self._delays)

    def heal_index(self, first_position: int) -> None:
        """Rebuild the index from a log position on."""
        if self._index is None:
            return
        _logger.warning("rebuilding the index from log position %d", first_position)
        try:
            self._index.drop_from(first_position)
            until = self._dispatcher.position
            wall_ms = self._clock.wall_ms()
            rebuild_index(self._log, self._index, first_position, until, self._delays, wall_ms)
        except CorruptStore as error:
            self._lose_index(error, first_position)
            raise
        except OSError as error:
            problem = _unwritable(error)
            self._lose_index(problem, first_position)
            raise problem from error

    def retry_index(self) -> None:
        """Try to rebuild an index that could not be written."""
        if self._index_lost_from is None:
            return
        if self._index is not None and isinstance(self._index.problem, CorruptStore):
            # The log itself is damaged: a file must be restored and the store opened again.
            return
        try:
            self.heal_index(self._index_lost_from)
        except (CorruptStore, DiskFull):
            return
        self._index_lost_from = None
        if self._index is not None:
            self._index.problem = None
        self._dispatcher.resume_index()
        self._flags.set(Running.INDEX_ERROR, False)

    def _write_out(self, least_size: int) -> None:
        try:
            self._queues.write_out(least_size)
        except OSError as error:
            self._queue_error(error)
        else:
            self._flags.set(Running.LOGIC_QUEUE_ERROR, False)

    def _queue_error(self, error: BaseException) -> None:
        """Queue units stay in memory and are retried; puts are refused until that succeeds."""
        if not self._flags.bits & Running.LOGIC_QUEUE_ERROR:
            _logger.error("consume queues cannot be written: %s", error)
        self._flags.set(Running.LOGIC_QUEUE_ERROR, True)

    def _lose_index(self, problem: CorruptStore | DiskFull, first_position: int) -> None:
        """Entries from `first_position` on are missing: queries fail until a retry succeeds."""
        if self._index_lost_from is None:
            _logger.error("the index is incomplete: %s", problem)
            self._index_lost_from = first_position
        self._index_lost_from = min(self._index_lost_from, first_position)
        self._flags.set(Running.INDEX_ERROR, True)
        if self._index is not None:
            self._index.problem = problem
        self._dispatcher.pause_index()

    def _checkpoint(self) -> None:
        """Save how far queues and index are durable, in the background."""
        if self._saving or self._dispatcher.position == self._derived.saved_position:
            return
        if self._flush.flushed.position < self._dispatcher.position:
            self._flush.flush_soon()
            self._last_ms["checkpoint"] = 0
            return
        if self._index_lost_from is not None:
            return
        try:
            snapshot = self._derived.snapshot()
        except OSError as error:
            self._queue_error(error)
            return
        self._saving = True
        self._worker.submit(
            lambda: self._derived.save(snapshot),
            lambda _, error: self._checkpointed(snapshot, error),
        )

    def _checkpointed(self, snapshot: DerivedSnapshot, error: BaseException | None) -> None:
        self._saving = False
        if error is None:
            self._derived.saved(snapshot)
            self._flags.set(Running.LOGIC_QUEUE_ERROR, False)
        else:
            self._queue_error(error)

    def _due(self, work: str, interval_ms: int) -> bool:
        now_ms = self._now_ms()
        if now_ms - self._last_ms[work] < interval_ms:
            return False
        self._last_ms[work] = now_ms
        return True

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def _unwritable(error: OSError) -> DiskFull:
    problem = DiskFull(f"the index cannot be written: {error}")
    problem.__cause__ = error
    return problem
