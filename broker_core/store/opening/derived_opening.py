"""Brings queues and index of a log up to its end when a store is opened.

Resets them to the dispatch checkpoint, rebuilds what is missing or does not match, and dispatches
the rest. The part of the log that it reads is durable by then.
"""

from __future__ import annotations

import logging

from broker_core.config import StoreConfig
from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.dispatch.rebuild import rebuild_index, rebuild_queue
from broker_core.runtime.clock import Clock
from broker_core.storage.derived.consume_queue import QueueDamaged
from broker_core.storage.derived.consume_queue_set import (
    ConsumeQueueSet,
    cut_unknown_bytes,
    end_by_scan,
    queue_directories,
    queues_with_missing_files,
)
from broker_core.storage.derived.dispatch_checkpoint import DispatchCheckpoint, save_checkpoint
from broker_core.storage.derived.message_index import MessageIndex
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.log.append_scan_cache import AppendScanCache
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.log.log_walk import KeptSteps
from broker_core.store.opening.derived_files import DerivedFiles

_logger = logging.getLogger(__name__)


class DerivedOpening:
    """One attempt; owns the queues and the index until the store takes them over."""

    def __init__(
        self, file_system: FileSystem, config: StoreConfig, clock: Clock, delays: memoryview
    ) -> None:
        self._fs = file_system
        self._config = config
        self._clock = clock
        self._delays = delays
        self.queues = ConsumeQueueSet(file_system, config.consume_queue_file_size)
        self.index: MessageIndex | None = None
        self.dispatched_from = 0
        self.rebuilt_queues = 0
        self.index_rebuilt_from: int | None = None
        self.is_trusted = False

    def catch_up(
        self,
        log: CommitLog,
        store_id: str,
        checkpoint: DispatchCheckpoint | None,
        kept: KeptSteps,
        written: AppendScanCache,
        *,
        trusted: bool,
        is_new: bool,
    ) -> tuple[LogDispatcher, DerivedFiles]:
        """Bring queues and index up to the end of the log.

        `trusted`: after a clean stop of ours, when the files match the checkpoint.

        `kept` has the steps that the search for the log's end has cached.
        """
        if checkpoint is None or checkpoint.position < log.start:
            checkpoint = self._checkpoint_for_rebuild(store_id, log)
            trusted = False
        if trusted:
            damaged = queues_with_missing_files(self._fs, checkpoint.queues)
        else:
            size = self._config.consume_queue_file_size
            damaged = cut_unknown_bytes(self._fs, checkpoint.queues, size)
        self.queues.restore(checkpoint.queues)
        self._open_index(checkpoint, clean=trusted)
        if self.index is not None and not checkpoint.is_indexed:
            # The index was switched off: queries must find the messages of that time, too.
            self.index_rebuilt_from = log.start
        self._rebuild(log, checkpoint, damaged)
        dispatcher = self._dispatch_to_end(log, checkpoint, kept, written)
        derived = DerivedFiles(self._fs, store_id, log, self.queues, self.index, dispatcher)
        derived.saved_position = self.dispatched_from = checkpoint.position
        self.is_trusted = trusted
        self.rebuilt_queues = len(damaged)
        changed = not trusted or bool(damaged) or self.index_rebuilt_from is not None
        if changed and not (is_new and not checkpoint.numbering):
            derived.save_now()
        else:
            derived.save_growing_index()
        return dispatcher, derived

    def abandon(self) -> None:
        """Close the files of a failed attempt."""
        self.queues.close()
        if self.index is not None:
            self.index.close()

    def _dispatch_to_end(
        self,
        log: CommitLog,
        checkpoint: DispatchCheckpoint,
        kept: KeptSteps,
        written: AppendScanCache,
    ) -> LogDispatcher:
        """Dispatch from the checkpoint to the end of the log, all of which is durable."""
        dispatcher = LogDispatcher(
            log,
            self.queues,
            self.index,
            checkpoint.position,
            clock=self._clock,
            delays=self._delays,
            slice_size=self._config.dispatch_slice_size,
            written=written,
        )
        dispatcher.store_timestamp = checkpoint.store_timestamp
        dispatcher.dispatch_kept(kept, log.position)
        dispatcher.dispatch(log.position, log.position)
        self._keep_numbering(checkpoint, log.start)
        if log.start > checkpoint.log_start:
            for queue in self.queues:
                try:
                    queue.raise_min(log.start)
                except QueueDamaged:
                    rebuild_queue(log, self.queues, queue, dispatcher.position, self._delays)
        return dispatcher

    def _checkpoint_for_rebuild(self, store_id: str, log: CommitLog) -> DispatchCheckpoint:
        """No usable checkpoint: build everything from the log, but keep the numbering of queues.

        Saved before the first queue file is removed, so that an interrupted rebuild keeps it.
        """
        size = self._config.consume_queue_file_size
        numbering = tuple(
            (topic, queue_id, end)
            for topic, queue_id in queue_directories(self._fs)
            if (end := end_by_scan(self._fs, (topic, queue_id), size)) > 0
        )
        checkpoint = DispatchCheckpoint(store_id, log.start, log.start, 0, (), (), numbering)
        if numbering:
            _logger.info("rebuilding %d queues from the log", len(numbering))
        if log.segments.all or numbering:
            save_checkpoint(self._fs, checkpoint)
        return checkpoint

    def _open_index(self, checkpoint: DispatchCheckpoint, *, clean: bool) -> None:
        config = self._config
        if not config.message_index_enable:
            return
        self.index = MessageIndex(
            self._fs,
            config.index_hash_slots,
            config.index_entries_max,
            with_tags=config.index_tags,
        )
        files = list(checkpoint.index_files)
        self.index_rebuilt_from = self.index.restore(files, clean=clean)

    def _rebuild(
        self,
        log: CommitLog,
        checkpoint: DispatchCheckpoint,
        damaged: set[tuple[bytes, int]],
    ) -> None:
        for key in sorted(damaged):
            queue = self.queues.queue(key)
            _logger.warning("rebuilding %s: its files do not match", queue.directory)
            rebuild_queue(log, self.queues, queue, checkpoint.position, self._delays)
        if self.index_rebuilt_from is not None and self.index is not None:
            rebuild_index(
                log,
                self.index,
                self.index_rebuilt_from,
                checkpoint.position,
                self._delays,
                self._clock.wall_ms(),
            )

    def _keep_numbering(self, checkpoint: DispatchCheckpoint, log_start: int) -> None:
        for topic, queue_id, offset in checkpoint.numbering:
            queue = self.queues.queue((topic, queue_id))
            if queue.max_offset == 0:
                queue.continue_at(offset, log_start)
                self.queues.mark_dirty(queue)
