"""The decision part of recovery: where the valid log ends and what follows from that.

    read_facts ─► (Opening syncs and drops the page cache) ─► decide ─► Opening acts

Nothing here changes a file. `check_store` runs the same decision on a store that is not open, for
`rmq store check`.
"""

from __future__ import annotations

import dataclasses
import itertools
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

from broker_core.config import StoreConfig, delay_levels_ms
from broker_core.errors import CorruptStore, InvalidArgument, StoreUnusable
from broker_core.runtime.worker import InlineWorker
from broker_core.storage.derived.consume_queue_set import short_queues
from broker_core.storage.derived.dispatch_checkpoint import DispatchCheckpoint, load_checkpoint
from broker_core.storage.derived.message_index import first_unusable
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.storage.log.commit_log import NO_RECORD
from broker_core.storage.log.log_walk import KeptSteps
from broker_core.storage.log.segment_file import Segment, segment_name
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR, SegmentSequence, log_file_path
from broker_core.storage.state.lock_and_abort_files import ended_cleanly, lock_if_present
from broker_core.storage.state.recovery import (
    RESTORE,
    CutPlan,
    LogEnd,
    check_files_present,
    find_log_end,
    goes_on_behind,
    list_log,
    plan_cut,
    split_leftovers,
)
from broker_core.storage.state.store_state import (
    FLAG_RECORDS_CHECKSUMMED,
    StoreState,
    stored_state,
)

_READ_SIZE = 1 << 20


class LogFacts(NamedTuple):
    """Facts from file names and small files, before the log itself is read."""

    state: StoreState | None
    checkpoint: DispatchCheckpoint | None
    clean_stop: bool
    """Whether the last run removed its `abort` file."""
    durable: int
    """Every byte below was synced; damage below is reported and never cut."""
    bases: tuple[int, ...]
    """Start positions of the files of the log."""
    old_files: tuple[str, ...]
    """Names of files that retention was removing when it stopped."""
    leftovers: tuple[int, ...]
    """Start positions of files after a gap that were prepared and never used."""

    def scan_start(self, log_start: int) -> int:
        """Where the search for the end begins: at the checkpoint, if the log has it."""
        checkpoint = self.checkpoint
        if checkpoint is not None and checkpoint.position >= log_start:
            return checkpoint.position
        return log_start


class RecoveryVerdict(NamedTuple):
    """Where the valid log ends, why, and what opening the store does about it."""

    store_id: str
    """Empty when there is no state file."""
    epoch: int
    clean_stop: bool
    log_start: int
    log_end: int
    end_reason: str
    """Why the valid log ends there; empty when nothing was written after it."""
    durable: int
    checked_from: int
    """The log was verified from here; equal to `log_end` when nothing had to be read."""
    trusted: bool
    """The stop was clean and nothing was appended since: nothing is cut or rebuilt."""
    cut: CutPlan
    removed_files: tuple[str, ...]
    """Log files to remove because retention or preparation was interrupted."""
    checksummed: bool
    """Whether all records after the durable position have a whole-record checksum."""
    dispatched_from: int
    """Queues and index are complete up to here; the rest is dispatched again."""
    rebuilds_all: bool
    """There is no usable checkpoint: all queues and the index are built from the log."""


class StoreCheck(NamedTuple):
    """What `rmq store check` prints."""

    verdict: RecoveryVerdict | None
    """None when the log is damaged."""
    damage: str
    cut_bytes: int
    """Written bytes after the end of the valid log."""
    rebuilt_queues: tuple[str, ...]
    index_rebuilt_from: int | None

    @property
    def is_sound(self) -> bool:
        """Whether opening the store loses nothing."""
        return not self.damage and self.cut_bytes == 0

    def to_json(self) -> dict[str, Any]:
        """The check as plain JSON values."""
        found = self._asdict()
        if self.verdict is not None:
            found["verdict"] = {**self.verdict._asdict(), "cut": self.verdict.cut._asdict()}
        return {"is_sound": self.is_sound, **found}


def read_facts(file_system: FileSystem, config: StoreConfig, state: StoreState | None) -> LogFacts:
    """Read names and small files; raises `CorruptStore` when a file of the log is missing."""
    size = config.commit_log_file_size
    checkpoint = load_checkpoint(file_system)
    if state is not None and checkpoint is not None and checkpoint.store_id != state.store_id:
        checkpoint = None
    clean = ended_cleanly(file_system)
    durable = max(state.durable_position if state else 0, checkpoint.position if checkpoint else 0)
    log_start = state.log_start if state is not None else None
    listed, old_files = list_log(file_system, size, log_start)
    bases, leftovers = split_leftovers(file_system, listed, size, durable)
    if clean and log_start is not None and goes_on_behind(file_system, bases, size, durable):
        # Another broker used the directory after our clean stop; its retention may have removed
        # the oldest files.
        log_start = bases[0]
    check_files_present(bases, size, log_start, durable)
    return LogFacts(
        state, checkpoint, clean, durable, tuple(bases), tuple(old_files), tuple(leftovers)
    )


def decide(
    facts: LogFacts,
    segments: SegmentSequence,
    config: StoreConfig,
    delays: memoryview,
    progress: Callable[[int], None] | None = None,
    kept: KeptSteps | None = None,
) -> RecoveryVerdict:
    """Find the end of the log. Raises `CorruptStore` for damage below the durable position.

    `kept` caches the steps of the search, so that dispatch need not walk there again.
    """
    state, checkpoint, durable = facts.state, facts.checkpoint, facts.durable
    clean = facts.clean_stop
    checked_from, checksummed = durable, True
    described = state is not None and checkpoint is not None and checkpoint.position == durable
    if clean and described and checkpoint and _nothing_behind(segments, durable):
        end = LogEnd(durable, "", checkpoint.store_timestamp)
    else:
        checked_from = facts.scan_start(segments.start)
        ours = bool(state is not None and state.flags & FLAG_RECORDS_CHECKSUMMED)
        end = find_log_end(
            segments,
            checked_from,
            delays,
            durable if ours else 0,
            progress,
            kept,
            index_tags=config.message_index_enable and config.index_tags,
        )
        _refuse_damage(end, segments.size, durable, clean=clean)
        if ours and end.position > durable:
            # Another broker may have written above the watermark; its records have no checksum.
            strict = find_log_end(segments, durable, delays, end.position)
            checksummed = strict.position == end.position
    trusted = clean and state is not None and end.position == durable
    cut = CutPlan((), ())
    if not trusted:
        cut = plan_cut([segment.base for segment in segments.all], segments.size, end.position)
    rebuilds_all = checkpoint is None or checkpoint.position < segments.start
    return RecoveryVerdict(
        store_id=state.store_id if state is not None else "",
        epoch=state.epoch if state is not None else 0,
        clean_stop=clean,
        log_start=segments.start,
        log_end=end.position,
        end_reason=end.reason,
        durable=durable,
        checked_from=checked_from,
        trusted=trusted,
        cut=cut,
        removed_files=(*facts.old_files, *(segment_name(base) for base in facts.leftovers)),
        checksummed=checksummed,
        dispatched_from=segments.start if rebuilds_all or not checkpoint else checkpoint.position,
        rebuilds_all=rebuilds_all,
    )


def _refuse_damage(end: LogEnd, file_size: int, durable: int, *, clean: bool) -> None:
    path = log_file_path(end.position - end.position % file_size)
    reason = end.reason or NO_RECORD
    if end.position < durable:
        raise CorruptStore(path, end.position, f"{reason} (durable up to {durable})", RESTORE)
    if clean and end.reason:
        raise CorruptStore(path, end.position, f"{reason} after a clean stop", RESTORE)


def _nothing_behind(segments: SegmentSequence, position: int) -> bool:
    """Whether the log ends here: no other broker has appended to it since."""
    segment = segments.find(position)
    if segment is None:
        return True
    return not any(segment.file.read(position - segment.base, 8))


# The check of a store that is not open


def check_directory(directory: str) -> StoreCheck:
    """`check_store` for a directory; raises `InvalidArgument` when it holds no store."""
    try:
        file_system = PosixFileSystem(directory, create=False)
    except StoreUnusable as error:
        raise InvalidArgument(str(error)) from error
    try:
        return check_store(file_system)
    finally:
        file_system.close()


def check_store(file_system: FileSystem, config: StoreConfig | None = None) -> StoreCheck:
    """Decide as an open would, and change nothing. Raises `StoreLocked` for a store in use.

    Without a `config` the file size comes from the files. Reads through the page cache: after a
    failed sync, an open may find less on the disk.
    """
    if not file_system.is_dir(COMMIT_LOG_DIR):
        raise InvalidArgument(f"the directory has no {COMMIT_LOG_DIR}: it holds no store")
    lock = lock_if_present(file_system)
    try:
        config = config or dataclasses.replace(
            StoreConfig(), commit_log_file_size=_file_size(file_system)
        )
        try:
            facts = read_facts(file_system, config, stored_state(file_system))
            return _checked(file_system, config, facts)
        except CorruptStore as error:
            return StoreCheck(None, str(error), 0, (), None)
    finally:
        if lock is not None:
            lock.close()


def _checked(file_system: FileSystem, config: StoreConfig, facts: LogFacts) -> StoreCheck:
    size, segments = config.commit_log_file_size, []
    try:
        for base in facts.bases:
            path = log_file_path(base)
            file = file_system.open(path, writable=False)
            segments.append(Segment(file, base, size, wrote=min(file.size, size)))
        sequence = SegmentSequence(file_system, size, segments, facts.durable, InlineWorker())
        delays = memoryview(array("q", delay_levels_ms(config.message_delay_level)))
        verdict = decide(facts, sequence, config, delays)
        cut_bytes = 0 if verdict.trusted else _written_behind(segments, verdict.log_end)
    finally:
        for segment in segments:
            segment.retire()
    checkpoint = facts.checkpoint
    if verdict.rebuilds_all or checkpoint is None:
        return StoreCheck(verdict, "", cut_bytes, (), None)
    short = short_queues(file_system, checkpoint.queues)
    queues = tuple(f"{topic.decode('ascii')}-{queue_id}" for topic, queue_id in sorted(short))
    index_from = first_unusable(file_system, checkpoint.index_files, clean=verdict.trusted)
    return StoreCheck(verdict, "", cut_bytes, queues, index_from)


def _written_behind(segments: list[Segment], end: int) -> int:
    """Bytes from `end` to the last one that is not zero."""
    for segment in reversed(segments):
        at = segment.committed
        low = max(end - segment.base, 0)
        while at > low:
            start = max(low, at - _READ_SIZE)
            used = len(segment.file.read(start, at - start).rstrip(b"\0"))
            if used:
                return segment.base + start + used - end
            at = start
    return 0


def _file_size(file_system: FileSystem) -> int:
    """The size of log files: the distance of two, or the length of the only one."""
    names = file_system.list(COMMIT_LOG_DIR)
    bases = [int(name) for name in names if name.isascii() and name.isdigit()]
    if len(bases) > 1:
        return min(after - before for before, after in itertools.pairwise(bases))
    if not bases:
        return StoreConfig().commit_log_file_size
    file = file_system.open(f"{COMMIT_LOG_DIR}/{names[0]}", writable=False)
    try:
        return file.size or StoreConfig().commit_log_file_size
    finally:
        file.close()
