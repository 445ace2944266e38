"""Opens a directory as a store: checks, recovers and catches up, in an order that can be repeated.

    lock → state → files present? → where does the log end? → cut the tail → epoch → queues and
    index back to their checkpoint → dispatch up to the end → checkpoint → `abort`

Nothing is exposed before the last step. A crash anywhere leads to the same result next time (I17).
"""

from __future__ import annotations

import dataclasses
import logging
from array import array

from broker_core.codec.record_layout import REQUIRE_CHECKSUM
from broker_core.config import StoreConfig, delay_levels_ms
from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.errors import CorruptStore
from broker_core.protocol_codes import BrokerRole, FlushDiskType
from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import Worker
from broker_core.storage.commit_log import CommitLog
from broker_core.storage.consume_queue import QUEUE_DIR
from broker_core.storage.consume_queue_set import ConsumeQueueSet
from broker_core.storage.dispatch_checkpoint import DispatchCheckpoint, load_checkpoint
from broker_core.storage.file_system import FileSystem
from broker_core.storage.log_walk import KeptSteps
from broker_core.storage.message_index import MessageIndex
from broker_core.storage.recovery import (
    RESTORE,
    LogEnd,
    check_files_present,
    cut_log,
    find_log_end,
    forget_unwritten_pages,
    goes_on_behind,
    list_log,
    open_segments,
    remove_leftovers,
    split_leftovers,
)
from broker_core.storage.run_marks import ended_cleanly, mark_running
from broker_core.storage.segment_file import Segment, segment_name
from broker_core.storage.segment_sequence import COMMIT_LOG_DIR, SegmentSequence
from broker_core.storage.store_state import (
    FLAG_RECORDS_CHECKSUMMED,
    FLAG_SYNC_BEGUN,
    FLAG_SYNC_FAILED,
    FLAG_VISIBLE_BEFORE_DURABLE,
    StoreState,
    StoreStateFile,
    new_state,
)
from broker_core.storage.write_buffer_pool import WriteBufferPool
from broker_core.store.derived_files import DerivedFiles
from broker_core.store.derived_opening import DerivedOpening

_logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class RecoveryReport:
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
    """The parts of a store, ready to serve."""

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
        self._pages_lost = False
        self._checksummed = True

    def run(self) -> OpenedStore:
        """Everything; on failure the files are closed and the directory is as it was."""
        try:
            return self._run()
        except BaseException:
            self._abandon()
            raise

    def _run(self) -> OpenedStore:
        # Names in the root become durable with the `abort` mark, before anything is appended.
        self._fs.make_dir(COMMIT_LOG_DIR)
        self._fs.make_dir(QUEUE_DIR)
        self._state_file = StoreStateFile.load(self._fs)
        state = self._state_file.state if self._state_file is not None else None
        checkpoint = load_checkpoint(self._fs)
        if state is not None and checkpoint is not None and checkpoint.store_id != state.store_id:
            checkpoint = None
        clean = ended_cleanly(self._fs)
        durable = max(
            state.durable_position if state else 0, checkpoint.position if checkpoint else 0
        )
        self._open_log(state, durable, clean=clean)
        sequence = SegmentSequence(
            self._fs, self._config.commit_log_file_size, self._segments, durable, self._worker
        )
        end = self._find_end(sequence, state, checkpoint, durable, clean=clean)
        trusted = clean and state is not None and end.position == durable
        if not trusted:
            self._segments = cut_log(self._fs, self._segments, end.position)
        else:
            self._set_write_position(end.position)
        log = self._commit_log(end.position)
        report_state = self._settle_state(state, checkpoint, log, clean=clean)
        return self._catch_up(log, end, report_state, checkpoint, state, trusted=trusted)

    def _open_log(self, state: StoreState | None, durable: int, *, clean: bool) -> None:
        size = self._config.commit_log_file_size
        log_start = state.log_start if state is not None else None
        if self._state_file is not None and not clean:
            # Files go because the state says so; a power cut must not take that back.
            self._state_file.sync()
        bases = list_log(self._fs, size, log_start).bases
        bases, leftovers = split_leftovers(self._fs, bases, size, durable)
        if clean and log_start is not None and goes_on_behind(self._fs, bases, size, durable):
            # Another broker used the directory after our clean stop; its retention may have
            # removed the oldest files.
            log_start = bases[0]
        check_files_present(bases, size, log_start, durable)
        remove_leftovers(self._fs, leftovers)
        self._segments = open_segments(
            self._fs,
            bases,
            size,
            durable,
            watermark_known=state is not None or durable > 0,
            clean=clean,
        )

    def _find_end(
        self,
        sequence: SegmentSequence,
        state: StoreState | None,
        checkpoint: DispatchCheckpoint | None,
        durable: int,
        *,
        clean: bool,
    ) -> LogEnd:
        described = state is not None and checkpoint is not None and checkpoint.position == durable
        if clean and described and checkpoint and self._nothing_behind(sequence, durable):
            return LogEnd(durable, "", checkpoint.store_timestamp)
        start = sequence.start
        if checkpoint is not None and checkpoint.position >= start:
            start = checkpoint.position
        if not clean or state is None:
            self._forget_pages(start, state)
        ours = state is not None and state.flags & FLAG_RECORDS_CHECKSUMMED
        progress = _Progress(self._clock, start, sequence.next_base)
        end = find_log_end(
            sequence,
            start,
            self._delays,
            durable if ours else 0,
            progress,
            self._kept,
            index_tags=self._config.message_index_enable and self._config.index_tags,
        )
        base = end.position - end.position % sequence.size
        path = f"{COMMIT_LOG_DIR}/{segment_name(base)}"
        reason = end.reason or "no record where one must be"
        if end.position < durable:
            raise CorruptStore(path, end.position, f"{reason} (durable up to {durable})", RESTORE)
        if clean and end.reason:
            raise CorruptStore(path, end.position, f"{reason} after a clean stop", RESTORE)
        if ours and end.position > durable:
            # Above the watermark another broker may have written, whose records have no checksum.
            strict = find_log_end(sequence, durable, self._delays, end.position)
            self._checksummed = strict.position == end.position
        return end

    def _forget_pages(self, start: int, state: StoreState | None) -> None:
        """Read from the disk only; notice when that takes away what readers may have seen."""
        seen = state is not None and state.flags & FLAG_VISIBLE_BEFORE_DURABLE
        suspect = state is not None and state.flags & FLAG_SYNC_BEGUN
        if state is not None and seen and not suspect and self._state_file is not None:
            # Should the sync below fail, the next attempt must compare.
            begun = state._replace(flags=state.flags | FLAG_SYNC_BEGUN)
            self._state_file.write(begun, sync=False)
        compare = bool(seen and suspect)
        self._pages_lost = forget_unwritten_pages(self._segments, start, compare=compare)

    def _nothing_behind(self, sequence: SegmentSequence, position: int) -> bool:
        """Whether the log really ends here, that is, no other broker went on writing."""
        segment = sequence.find(position)
        if segment is None:
            return True
        return not any(segment.file.read(position - segment.base, 8))

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
            # Mapped now: an append must not find out half way that it cannot be.
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
        return CommitLog(sequence, position)

    def _settle_state(
        self,
        state: StoreState | None,
        checkpoint: DispatchCheckpoint | None,
        log: CommitLog,
        *,
        clean: bool,
    ) -> StoreState:
        """Write the state of this run: watermark at the end, a new epoch when data may be lost."""
        visible_early = self._config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        flags = FLAG_VISIBLE_BEFORE_DURABLE if visible_early else 0
        if self._is_checksummed(state, log):
            flags |= FLAG_RECORDS_CHECKSUMMED
            log.check_level = REQUIRE_CHECKSUM
        boot_id = self._fs.boot_id()
        if state is None:
            fresh = new_state(flags, boot_id)
            if checkpoint is not None:
                # The identity survives, the epoch is lost: one that no earlier run can have had.
                fresh = fresh._replace(
                    store_id=checkpoint.store_id, epoch=self._clock.wall_ms() // 1000
                )
            settled = fresh._replace(durable_position=log.position, log_start=log.start)
            if self._state_file is not None:
                self._state_file.close()
            self._state_file = StoreStateFile.create(self._fs, settled)
            return settled
        # A power cut alone takes no position that a reader keeps: ends are named once they are
        # durable, in every flush mode (`durable_end`). A disk that failed is not taken at its word.
        disk_failed = state.flags & FLAG_SYNC_FAILED or self._pages_lost
        seen_early = state.flags & FLAG_VISIBLE_BEFORE_DURABLE
        bump = 1 if not clean and disk_failed and seen_early else 0
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
        if not self._config.append_record_crc or not self._checksummed:
            return False
        if self._config.broker_role is BrokerRole.SLAVE:
            # Its records are the master's, who may be another's broker.
            return False
        if state is None:
            return log.position == 0
        return bool(state.flags & FLAG_RECORDS_CHECKSUMMED)

    def _catch_up(
        self,
        log: CommitLog,
        end: LogEnd,
        state: StoreState,
        checkpoint: DispatchCheckpoint | None,
        before: StoreState | None,
        *,
        trusted: bool,
    ) -> OpenedStore:
        derived = self._derived
        dispatcher, files = derived.catch_up(
            log,
            state.store_id,
            checkpoint,
            self._kept,
            trusted=trusted,
            is_new=before is None and log.position == 0,
        )
        mark_running(self._fs, self._process_id)
        report = RecoveryReport(
            clean=derived.is_trusted,
            adopted=checkpoint is None and bool(self._segments),
            log_start=log.start,
            log_end=end.position,
            cut_reason=end.reason,
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
    """Says now and then how far the check of a long log is."""

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
