"""Opens a directory as a store: checks, recovers and catches up, in an order that can be repeated.

    lock → state → facts → finish interrupted work on files → verdict → cut the tail → epoch →
    queues and index back to their checkpoint → dispatch up to the end → checkpoint → `abort`

`verdict.py` decides without changing anything; this module acts. Nothing is exposed before the last
step. A crash anywhere leads to the same result next time (I17).
"""

from __future__ import annotations

import dataclasses
import logging
from array import array
from typing import NamedTuple

from broker_core.codec.records.record_layout import REQUIRE_CHECKSUM
from broker_core.config import StoreConfig, delay_levels_ms
from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.protocol_codes import BrokerRole, FlushDiskType
from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import Worker
from broker_core.storage.derived.consume_queue import QUEUE_DIR
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet
from broker_core.storage.derived.message_index import MessageIndex
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.log.append_scan_cache import AppendScanCache
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.log.log_walk import KeptSteps
from broker_core.storage.log.segment_file import Segment
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR, SegmentSequence
from broker_core.storage.log.write_buffer_pool import WriteBufferPool
from broker_core.storage.state.lock_and_abort_files import mark_running
from broker_core.storage.state.recovery import (
    cut_log,
    forget_unwritten_pages,
    open_segments,
    remove_leftovers,
    remove_old_files,
)
from broker_core.storage.state.store_state import (
    FLAG_RECORDS_CHECKSUMMED,
    FLAG_SYNC_BEGUN,
    FLAG_SYNC_FAILED,
    FLAG_VISIBLE_BEFORE_DURABLE,
    StoreState,
    StoreStateFile,
    new_state,
)
from broker_core.store.opening.derived_files import DerivedFiles
from broker_core.store.opening.derived_opening import DerivedOpening
from broker_core.store.opening.verdict import LogFacts, RecoveryVerdict, decide, read_facts

_logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 2.0


class RecoveryReport(NamedTuple):
    """What opening found and did."""

    clean: bool
    adopted: bool
    log_start: int
    log_end: int
    cut_reason: str
    dispatched_from: int
    epoch: int
    epoch_changed: bool
    rebuilt_queues: int
    index_rebuilt_from: int | None


@dataclasses.dataclass(slots=True)
class OpenedStore:
    """Files and tables of a store that is ready to serve."""

    state_file: StoreStateFile
    log: CommitLog
    queues: ConsumeQueueSet
    index: MessageIndex | None
    dispatcher: LogDispatcher
    derived: DerivedFiles
    report: RecoveryReport
    delays: memoryview


class Opening:
    """One attempt to open a directory; used once."""

    def __init__(
        self,
        file_system: FileSystem,
        config: StoreConfig,
        clock: Clock,
        worker: Worker,
        process_id: int,
    ) -> None:
        self._fs = file_system
        self._config = config
        self._clock = clock
        self._worker = worker
        self._process_id = process_id
        self._delays = memoryview(array("q", delay_levels_ms(config.message_delay_level)))
        self._segments: list[Segment] = []
        self._state_file: StoreStateFile | None = None
        self._derived = DerivedOpening(file_system, config, clock, self._delays)
        self._kept = KeptSteps()
        self._written = AppendScanCache(
            self._delays, index_tags=config.message_index_enable and config.index_tags
        )
        self._pages_lost = False

    def run(self) -> OpenedStore:
        """Open the store. On failure the files are closed and the directory is unchanged."""
        try:
            return self._run()
        except BaseException:
            self._abandon()
            raise

    def _run(self) -> OpenedStore:
        # Names in the root become durable with the `abort` file, before anything is appended.
        self._fs.make_dir(COMMIT_LOG_DIR)
        self._fs.make_dir(QUEUE_DIR)
        self._state_file = StoreStateFile.load(self._fs)
        state = self._state_file.state if self._state_file is not None else None
        facts = read_facts(self._fs, self._config, state)
        self._prepare(facts)
        sequence = SegmentSequence(
            self._fs, self._config.commit_log_file_size, self._segments, facts.durable, self._worker
        )
        start = facts.scan_start(sequence.start)
        if not facts.clean_stop or state is None:
            self._forget_pages(start, state)
        progress = _Progress(self._clock, start, sequence.next_base)
        verdict = decide(facts, sequence, self._config, self._delays, progress, self._kept)
        return self._act(facts, verdict)

    def _prepare(self, facts: LogFacts) -> None:
        """Finish interrupted retention, preparation and creation of log files."""
        if self._state_file is not None and not facts.clean_stop:
            # The state that allows removing files must be durable before they are removed.
            self._state_file.sync()
        remove_old_files(self._fs, facts.old_files)
        remove_leftovers(self._fs, facts.leftovers)
        self._segments = open_segments(
            self._fs,
            facts.bases,
            self._config.commit_log_file_size,
            facts.durable,
            watermark_known=facts.state is not None or facts.durable > 0,
            clean=facts.clean_stop,
        )

    def _act(self, facts: LogFacts, verdict: RecoveryVerdict) -> OpenedStore:
        """Cut the log, write the new state, bring queues and index up to the end."""
        if verdict.trusted:
            self._set_write_position(verdict.log_end)
        else:
            self._segments = cut_log(self._fs, self._segments, verdict.cut)
        log = self._commit_log(verdict.log_end)
        settled = self._settle_state(facts, verdict, log)
        return self._catch_up(log, facts, verdict, settled)

    def _forget_pages(self, start: int, state: StoreState | None) -> None:
        """Drop cached pages; detect whether that loses bytes that readers may have seen."""
        seen = state is not None and state.flags & FLAG_VISIBLE_BEFORE_DURABLE
        suspect = state is not None and state.flags & FLAG_SYNC_BEGUN
        if state is not None and seen and not suspect and self._state_file is not None:
            # If the sync below fails, the next attempt must compare.
            begun = state._replace(flags=state.flags | FLAG_SYNC_BEGUN)
            self._state_file.write(begun, sync=False)
        compare = bool(seen and suspect)
        self._pages_lost = forget_unwritten_pages(self._segments, start, compare=compare)

    def _set_write_position(self, end: int) -> None:
        kept = []
        for segment in self._segments:
            if segment.base > end:
                segment.retire()
                continue
            segment.wrote = segment.committed = min(segment.size, end - segment.base)
            kept.append(segment)
        self._segments = kept

    def _commit_log(self, position: int) -> CommitLog:
        config = self._config
        pool = None
        if config.transient_pool_enable:
            pool = WriteBufferPool(config.transient_pool_size, config.commit_log_file_size)
        start = position - position % config.commit_log_file_size
        if self._segments:
            # Mapped now, so that a later append cannot fail on it.
            self._segments[-1].map()
            if self._segments[-1].base + self._segments[-1].size == position:
                start = position
        sequence = SegmentSequence(
            self._fs,
            config.commit_log_file_size,
            self._segments,
            start,
            self._worker,
            pool=pool,
            pool_fail_fast=config.transient_pool_fail_fast,
            warm=config.warm_files,
        )
        return CommitLog(sequence, position, on_written=self._written.note)

    def _settle_state(
        self,
        facts: LogFacts,
        verdict: RecoveryVerdict,
        log: CommitLog,
    ) -> StoreState:
        """Write the state of this run: watermark at the end, a new epoch when data may be lost."""
        state, checkpoint = facts.state, facts.checkpoint
        visible_early = self._config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        flags = FLAG_VISIBLE_BEFORE_DURABLE if visible_early else 0
        if verdict.checksummed and self._is_checksummed(state, log):
            flags |= FLAG_RECORDS_CHECKSUMMED
            log.check_level = REQUIRE_CHECKSUM
        boot_id = self._fs.boot_id()
        if state is None:
            fresh = new_state(flags, boot_id)
            if checkpoint is not None:
                # The identity survives, the epoch is lost: use one that no earlier run had.
                fresh = fresh._replace(
                    store_id=checkpoint.store_id, epoch=self._clock.wall_ms() // 1000
                )
            settled = fresh._replace(durable_position=log.position, log_start=log.start)
            if self._state_file is not None:
                self._state_file.close()
            self._state_file = StoreStateFile.create(self._fs, settled)
            return settled
        # A power cut alone invalidates no stored position: readers only get durable ends, in every
        # flush mode. A disk that failed is not trusted.
        disk_failed = state.flags & FLAG_SYNC_FAILED or self._pages_lost
        seen_early = state.flags & FLAG_VISIBLE_BEFORE_DURABLE
        bump = 1 if not facts.clean_stop and disk_failed and seen_early else 0
        settled = state._replace(
            epoch=state.epoch + bump,
            durable_position=log.position,
            log_start=max(log.start, state.log_start),
            flags=flags,
            boot_id=boot_id,
        )
        if self._state_file is not None and settled != self._state_file.state:
            self._state_file.write(settled, sync=True)
        return settled

    def _is_checksummed(self, state: StoreState | None, log: CommitLog) -> bool:
        """Whether every record has a whole-record checksum, now and from now on."""
        if not self._config.append_record_crc:
            return False
        if self._config.broker_role is BrokerRole.SLAVE:
            # Its records come from the master, which may be an Apache broker.
            return False
        if state is None:
            return log.position == 0
        return bool(state.flags & FLAG_RECORDS_CHECKSUMMED)

    def _catch_up(
        self,
        log: CommitLog,
        facts: LogFacts,
        verdict: RecoveryVerdict,
        state: StoreState,
    ) -> OpenedStore:
        derived, before, checkpoint = self._derived, facts.state, facts.checkpoint
        dispatcher, files = derived.catch_up(
            log,
            state.store_id,
            checkpoint,
            self._kept,
            self._written,
            trusted=verdict.trusted,
            is_new=before is None and log.position == 0,
        )
        mark_running(self._fs, self._process_id)
        report = RecoveryReport(
            clean=derived.is_trusted,
            adopted=checkpoint is None and bool(self._segments),
            log_start=log.start,
            log_end=verdict.log_end,
            cut_reason=verdict.end_reason,
            dispatched_from=derived.dispatched_from,
            epoch=state.epoch,
            epoch_changed=before is not None and before.epoch != state.epoch,
            rebuilt_queues=derived.rebuilt_queues,
            index_rebuilt_from=derived.index_rebuilt_from,
        )
        _log_report(report)
        assert self._state_file is not None
        return OpenedStore(
            self._state_file,
            log,
            derived.queues,
            derived.index,
            dispatcher,
            files,
            report,
            self._delays,
        )

    def _abandon(self) -> None:
        for segment in self._segments:
            segment.retire()
        self._derived.abandon()
        if self._state_file is not None:
            self._state_file.close()


class _Progress:
    """Logs the progress of a long check."""

    def __init__(self, clock: Clock, start: int, top: int) -> None:
        self._clock = clock
        self._start = start
        self._top = top
        self._said = clock.monotonic()

    def __call__(self, position: int) -> None:
        now = self._clock.monotonic()
        if now - self._said >= PROGRESS_INTERVAL_S:
            self._said = now
            checked, size = position - self._start, self._top - self._start
            _logger.info("checking the log: %d of at most %d MB", checked >> 20, size >> 20)


def _log_report(report: RecoveryReport) -> None:
    if report.clean:
        return
    _logger.info(
        "recovered: log [%d, %d), dispatched again from %d, epoch %d%s%s",
        report.log_start,
        report.log_end,
        report.dispatched_from,
        report.epoch,
        " (new)" if report.epoch_changed else "",
        f", tail cut: {report.cut_reason}" if report.cut_reason else "",
    )
