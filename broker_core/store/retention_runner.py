"""Executes a retention plan atomically for readers and crashes.

Order: the new log start is durable in the state; readers stop at the new minimum; the dispatch
checkpoint no longer lists the queue and index files to remove; only then are the files unlinked. A
crash in between leaves files that the next open removes.
"""

from __future__ import annotations

import time

from broker_core.config import StoreConfig, delete_hours
from broker_core.flush.flush_service import FlushService
from broker_core.runtime.clock import Clock
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet
from broker_core.storage.derived.message_index import MessageIndex
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.log.file_ages import FileAges
from broker_core.storage.log.retention import (
    AgedFile,
    RetentionLimits,
    RetentionPlan,
    plan_retention,
    used_percent,
)
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR, log_file_path
from broker_core.store.opening.derived_files import DerivedFiles


def retention_limits(config: StoreConfig) -> RetentionLimits:
    """The retention limits of a configuration."""
    return RetentionLimits(
        config.file_reserved_hours,
        delete_hours(config.delete_when),
        config.disk_used_ratio_max,
        config.disk_forcible_ratio,
        config.disk_warning_ratio,
        config.clean_forcibly_enable,
        config.delete_files_per_round,
    )


class RetentionRunner:
    """Owner thread only."""

    def __init__(
        self,
        file_system: FileSystem,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueueSet,
        index: MessageIndex | None,
        derived: DerivedFiles,
        flush: FlushService,
    ) -> None:
        self._file_system = file_system
        self._limits = retention_limits(config)
        self._clock = clock
        self._log = log
        self._queues = queues
        self._index = index
        self._derived = derived
        self._flush = flush
        self._ages = FileAges(clock)

    def reconfigure(self, config: StoreConfig) -> None:
        """Use the limits of `config` from the next plan on."""
        self._limits = retention_limits(config)

    def plan(self, *, manual: bool = False) -> RetentionPlan:
        """The files that may be removed now."""
        segments = self._log.segments.all
        files = [
            AgedFile(segment.base, segment.base + segment.size, age_ms)
            for segment, age_ms in zip(segments, self._ages.of(segments), strict=True)
        ]
        usage = self._file_system.usage()
        return plan_retention(
            files,
            time.localtime(self._clock.wall_ms() // 1000).tm_hour,
            used_percent(usage.used, usage.usable),
            self._limits,
            manual=manual,
        )

    def carry_out(self, plan: RetentionPlan, dispatched: int) -> int:
        """Remove the planned files as far as they are dispatched; returns the new log start."""
        limit = min(plan.delete_before, dispatched, self._flush.flushed.position)
        if self._derived.saved_position < limit:
            # The numbering of a queue without records is in the checkpoint only, and a checkpoint
            # before the start of the log is not used.
            self._derived.save_now()
        # Units still in memory would be written to files that are about to be removed.
        self._queues.write_out()
        start = self._log.segments.start_after_drop(limit)
        if start == self._log.start:
            return start
        # Everything that can fail happens before the first change.
        minimums = [(queue, queue.first_kept(start)) for queue in self._queues]
        self._flush.raise_log_start(start)
        dropped = self._log.segments.drop_before(limit)
        for queue, minimum in minimums:
            queue.min_offset = minimum
        old_queue_files = [path for queue in self._queues for path in queue.drop_old_files()]
        old_index_files = self._index.drop_before(start) if self._index is not None else []
        self._derived.save_now()
        for segment in dropped:
            segment.retire()
            self._file_system.unlink(log_file_path(segment.base))
        self._file_system.sync_dir(COMMIT_LOG_DIR)
        for path in old_queue_files:
            self._file_system.unlink(path)
        if self._index is not None:
            self._index.unlink(old_index_files)
        return start
