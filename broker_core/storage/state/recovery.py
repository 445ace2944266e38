"""Finds the end of the valid log (`find_log_end`) and cuts the files there (`cut_log`).

Two rules tell a torn tail from damage. At or above the durable watermark an invalid record is the
tail of an interrupted write: the log is cut there and the rest of the file is zeroed, so that stale
bytes cannot be read later. Below the watermark it is damage to acknowledged data: it is reported
with file and position and never cut. Every step can be interrupted and repeated.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from broker_core.codec.records.record_layout import CHECK_CHECKSUMS, REQUIRE_CHECKSUM
from broker_core.errors import CorruptStore, MalformedRecord, StoreUnusable
from broker_core.storage.files.file_system import FileSystem, StoreFile
from broker_core.storage.log.log_walk import KeptSteps, group_header_at, walk_step
from broker_core.storage.log.segment_file import NAME_DIGITS, Segment, segment_name
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR, SegmentSequence, log_file_path

CHECK_SIZE = 1 << 20
# This many of the walked bytes stay cached for the first readers. Older pages are released and used
# for the next reads: on virtual machines the first use of a page costs more than checking it.
WALKED_CACHE_SIZE = 64 << 20
RELEASE_SIZE = 8 << 20
RESTORE = "Restore the file from a replica or a backup; nothing was changed"


class LogEnd(NamedTuple):
    """Where the valid log ends and why, and the store time of its last record."""

    position: int
    reason: str
    store_timestamp: int


class CutPlan(NamedTuple):
    """What `cut_log` does to the files after the end of the log."""

    removed: tuple[str, ...]
    """Names of files to remove."""
    zeroed: tuple[tuple[str, int], ...]
    """Names of files to zero, each with the byte to start from."""


class LogFiles(NamedTuple):
    """Commit-log files by start position, and names of files that retention was removing."""

    bases: list[int]
    old: list[str]


def list_log(file_system: FileSystem, file_size: int, log_start: int | None) -> LogFiles:
    """The checked file names of the log. `old` are those that retention was removing."""
    bases = []
    for name in file_system.list(COMMIT_LOG_DIR):
        if len(name) != NAME_DIGITS or not (name.isascii() and name.isdigit()):
            raise StoreUnusable(
                f"{COMMIT_LOG_DIR}/{name} is not a commit-log file; move it out of the directory"
            )
        bases.append(int(name))
    if any(base % file_size for base in bases):
        raise StoreUnusable(
            f"{COMMIT_LOG_DIR} holds files that do not start at multiples of {file_size}; set "
            "commit_log_file_size (mappedFileSizeCommitLog) to the size this store was written with"
        )
    old = []
    if log_start is not None:
        old = [segment_name(base) for base in bases if base + file_size <= log_start]
        bases = [base for base in bases if base + file_size > log_start]
    return LogFiles(bases, old)


def remove_old_files(file_system: FileSystem, names: Iterable[str]) -> None:
    """Finish an interrupted retention."""
    removed = False
    for name in names:
        file_system.unlink(f"{COMMIT_LOG_DIR}/{name}")
        removed = True
    if removed:
        file_system.sync_dir(COMMIT_LOG_DIR)


def split_leftovers(
    file_system: FileSystem, bases: list[int], file_size: int, durable: int
) -> tuple[list[int], list[int]]:
    """The log's files, and files after a gap that were prepared but never used."""
    for number in range(1, len(bases)):
        if bases[number] == bases[number - 1] + file_size:
            continue
        behind = bases[number:]
        if behind[0] < durable or any(_is_used(file_system, base) for base in behind):
            break
        return bases[:number], behind
    return bases, []


def remove_leftovers(file_system: FileSystem, bases: Sequence[int]) -> None:
    """Newest first, one by one: a crash in between must not leave another gap."""
    for base in reversed(bases):
        file_system.unlink(log_file_path(base))
        file_system.sync_dir(COMMIT_LOG_DIR)


def _is_used(file_system: FileSystem, base: int) -> bool:
    file = file_system.open(log_file_path(base), writable=False)
    try:
        return any(file.read(0, 8))
    finally:
        file.close()


def check_files_present(
    bases: list[int], file_size: int, log_start: int | None, durable: int
) -> None:
    """Refuse a log with a missing first, middle or last file."""
    expected = None if log_start is None else log_start - log_start % file_size
    if expected is not None and durable > expected and (not bases or bases[0] != expected):
        raise _missing(expected)
    for before, after in itertools.pairwise(bases):
        if after != before + file_size:
            raise _missing(before + file_size)
    end = bases[-1] + file_size if bases else (expected or 0)
    if durable > end:
        raise _missing(end)


def goes_on_behind(file_system: FileSystem, bases: list[int], size: int, durable: int) -> bool:
    """Whether another broker appended to the log after the position where we stopped."""
    base = durable - durable % size
    if not bases or bases[-1] < base:
        return False
    if base not in bases:
        return bases[0] > durable
    file = file_system.open(log_file_path(base), writable=False)
    try:
        return any(file.read(durable - base, 8))
    finally:
        file.close()


def _missing(base: int) -> CorruptStore:
    path = log_file_path(base)
    return CorruptStore(path, base, "a commit-log file with durable data is missing", RESTORE)


def open_segments(
    file_system: FileSystem,
    bases: Sequence[int],
    file_size: int,
    durable: int,
    *,
    watermark_known: bool,
    clean: bool,
) -> list[Segment]:
    """Open the files; finish the interrupted creation or cut of a short one.

    Without a watermark (a log of another broker) only the last file may be unfinished, and after a
    clean stop none that holds data: it was written with another file size.
    """
    segments = []
    for base in bases:
        path = log_file_path(base)
        file = file_system.open(path)
        length = file.size
        if length > file_size:
            file.close()
            raise StoreUnusable(
                f"{path} has {length} bytes, more than commit_log_file_size={file_size}; set "
                "commit_log_file_size (mappedFileSizeCommitLog) to the size it was written with"
            )
        if length < file_size:
            needed = base + file_size if clean and base < durable else durable
            if base + length < needed or not (watermark_known or base == bases[-1]):
                file.close()
                raise CorruptStore(
                    path,
                    base + length,
                    f"the file has {length} of {file_size} bytes",
                    "If the store was written with another size of files, set commit_log_file_size"
                    f" (mappedFileSizeCommitLog) to it; else the file was cut short. {RESTORE}",
                )
            file.allocate(0, file_size)
            file.sync()
        segments.append(Segment(file, base, file_size, wrote=file_size))
    return segments


def forget_unwritten_pages(segments: list[Segment], position: int, *, compare: bool) -> bool:
    """Sync pages that a killed process left dirty, then read from the disk only.

    After a failed sync the page cache may show bytes that the disk never got; after dropping the
    cache the scan reads the disk. With `compare`, returns whether that changed anything.
    """
    changed = False
    for segment in segments:
        if segment.base + segment.size > position:
            shown = _checksum(segment.file) if compare else 0
            segment.file.sync()
            segment.file.drop_cache()
            changed = changed or (compare and _checksum(segment.file) != shown)
    return changed


def _checksum(file: StoreFile) -> int:
    checksum = start = 0
    while data := file.read(start, CHECK_SIZE):
        checksum = zlib.crc32(data, checksum)
        start += len(data)
    return checksum


def find_log_end(
    segments: SegmentSequence,
    start: int,
    delays: memoryview,
    checksummed_until: int,
    progress: Callable[[int], None] | None = None,
    kept: KeptSteps | None = None,
    *,
    index_tags: bool = False,
) -> LogEnd:
    """Walk from `start` with every check on; an append group counts only when it is complete.

    Records below `checksummed_until`, a record's end, must have a whole-record checksum.
    `progress` is called with the position after every few megabytes. `kept` caches the steps, also
    those after the end; `index_tags` adds the keys of tags to them.
    """
    released = start
    position, timestamp, group_end = start, 0, 0
    before_group = LogEnd(start, "", 0)
    top = segments.next_base
    while True:
        try:
            header = group_header_at(segments, position)
        except MalformedRecord as error:
            return _ended(position, error.reason, timestamp, group_end, before_group)
        if header is not None:
            if position < group_end:
                return before_group
            before_group = LogEnd(position, "an append group is incomplete", timestamp)
            group_end = header.end
        limit = group_end if position < group_end else top
        level = CHECK_CHECKSUMS
        if position < checksummed_until:
            level, limit = REQUIRE_CHECKSUM, min(limit, checksummed_until)
        step = walk_step(
            segments, position, limit, check_crc=level, delays=delays, index_tags=index_tags
        )
        if step.scan is not None and step.scan.count:
            timestamp = step.scan.store_timestamp
        position = step.end
        if kept is not None:
            kept.add(step)
            if not kept.is_full:
                released = _release(segments, released, position - WALKED_CACHE_SIZE)
        if progress is not None:
            progress(position)
        goes_on = position in (group_end, checksummed_until) and step.start < position
        if step.ended and not goes_on:
            return _ended(position, step.reason, timestamp, group_end, before_group)


def _release(segments: SegmentSequence, start: int, end: int) -> int:
    """Release the pages of `[start, end)` if that is at least `RELEASE_SIZE`.

    Returns the end of the released range. It is not walked again.
    """
    segment = segments.find(start)
    if segment is None or end - start < RELEASE_SIZE:
        return start
    end = min(end, segment.base + segment.size)
    segment.file.release(start - segment.base, end - segment.base)
    return end


def _ended(
    position: int, reason: str, timestamp: int, group_end: int, before_group: LogEnd
) -> LogEnd:
    if position < group_end:
        return before_group
    return LogEnd(position, reason, timestamp)


def plan_cut(bases: Sequence[int], file_size: int, end: int) -> CutPlan:
    """The cut of a log that ends at `end`; the first file always stays."""
    removed = [segment_name(base) for base in bases if base >= end and base > bases[0]]
    zeroed = [
        (segment_name(base), max(end - base, 0))
        for base in bases
        if base + file_size > end and (base < end or base == bases[0])
    ]
    return CutPlan(tuple(removed), tuple(zeroed))


def cut_log(file_system: FileSystem, segments: list[Segment], plan: CutPlan) -> list[Segment]:
    """Remove and zero what `plan` says; returns the segments that stay."""
    kept = []
    zeroed = dict(plan.zeroed)
    for segment in reversed(segments):
        name = segment_name(segment.base)
        path = f"{COMMIT_LOG_DIR}/{name}"
        if name in plan.removed:
            segment.retire()
            file_system.unlink(path)
            # One by one, newest first: a crash in between must not leave a gap.
            file_system.sync_dir(COMMIT_LOG_DIR)
            continue
        if name in zeroed:
            segment = _zero_from(file_system, segment, zeroed[name], path)
        kept.append(segment)
    kept.reverse()
    return kept


def _zero_from(file_system: FileSystem, segment: Segment, start: int, path: str) -> Segment:
    # A mapped file must not shrink, so it is opened again.
    segment.retire()
    file = file_system.open(path)
    file.resize(start)
    file.allocate(start, segment.size - start)
    file.sync()
    return Segment(file, segment.base, segment.size, wrote=start)
