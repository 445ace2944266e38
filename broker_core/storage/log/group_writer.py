"""Writes the records of a group into the log: long groups on two threads.

The whole group is laid out before its first byte is written, so each run has its position and its
queue offsets, independent of the thread that writes it. Runs may be written in any order: a crash
in between leaves an incomplete group, which recovery cuts.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker_core.codec.native import relocate_run
from broker_core.codec.records.column_batch import encode_places
from broker_core.codec.records.record_layout import BLANK_RESERVE
from broker_core.errors import MalformedRecord
from broker_core.runtime.two_thread_map import share_work
from broker_core.runtime.worker import Worker
from broker_core.storage.log.append_scan_cache import AppendScanCache
from broker_core.storage.log.commit_log import SCRATCH_SIZE, CommitLog, RecordRun
from broker_core.storage.log.log_walk import Step
from broker_core.storage.log.segment_file import Segment
from broker_core.storage.staging.staged_run import PrivateMemory

# Two threads are faster from this size on; a longer run is written in pieces by the owner.
SHARED_SIZE_MIN: Final = 4 << 20
RUN_SIZE_MAX: Final = 4 << 20


class NumberedRun(NamedTuple):
    """A run and the next offset of each of its queues, which advances as it is written."""

    run: RecordRun
    offsets: array[int]

    @property
    def size(self) -> int:
        """Bytes in the log, if no file ends inside of it."""
        return self.run.size


class Stamp(NamedTuple):
    """Fields that all records of a group share."""

    timestamp: int
    store_host: bytes


class _Place(NamedTuple):
    run: RecordRun
    offsets: memoryview
    position: int

    @property
    def end(self) -> int:
        return self.position + self.run.size


class _ThreadBuffers(NamedTuple):
    """The buffers of one of the two threads."""

    memory: PrivateMemory
    scratch: memoryview


class GroupWriter:
    """Owner thread only, but for the runs that `helper` writes while the owner does, too."""

    def __init__(
        self,
        log: CommitLog,
        written: AppendScanCache,
        helper: Worker,
        start_writeback: Callable[[], None],
    ) -> None:
        self._log = log
        self._written = written
        self._helper = helper
        self._start_writeback = start_writeback
        # One for each thread, allocated on first use.
        self._buffers: tuple[_ThreadBuffers, ...] = ()

    def write(self, runs: Sequence[NumberedRun], stamp: Stamp) -> None:
        """Append all runs.

        Raises `OSError`, or `MalformedRecord` or `StagingRefused` for runs that have changed.
        """
        log = self._log
        log.begin_slices()
        first = 0
        while first < len(runs):
            segment = log.segments.last
            after = first if segment is None else self._end_of_shared(segment, runs, first)
            if segment is not None and after > first:
                self._write_shared(segment, runs[first:after], stamp)
                first = after
            else:
                run, offsets = runs[first]
                log.append_run(run, memoryview(offsets), *stamp, self._start_writeback)
                first += 1

    def take_back(self, position: int, header_end: int, end: int) -> None:
        """Restore the log to its end at `position`, before a group that reaches `end` at most.

        Waits for the disk: after a crash no old records may follow the next append. The header is
        removed last; as long as it exists, recovery cuts the group.
        """
        self._log.take_back(position, header_end, end)
        self._written.forget_from(position)

    def _end_of_shared(self, segment: Segment, runs: Sequence[NumberedRun], first: int) -> int:
        """End index of the runs that two threads can write to this file; `first` for none."""
        if segment.buffered:
            return first
        after, end = first, segment.wrote
        for run in runs[first:]:
            if run.size > RUN_SIZE_MAX or end + run.size + BLANK_RESERVE > segment.size:
                break
            end += run.size
            after += 1
        return after if end - segment.wrote >= SHARED_SIZE_MIN else first

    def _write_shared(self, segment: Segment, runs: Sequence[NumberedRun], stamp: Stamp) -> None:
        if not self._buffers:
            scratches = (memoryview(bytearray(SCRATCH_SIZE)) for _ in range(2))
            self._buffers = tuple(_ThreadBuffers(PrivateMemory(), scratch) for scratch in scratches)
        places, position = [], self._log.position
        for run, offsets in runs:
            places.append(_Place(run, memoryview(offsets), position))
            position = places[-1].end

        def write(thread: int, place: _Place) -> tuple[int, list[Step | None]]:
            return place.end, self._write_run(segment, self._buffers[thread], place, stamp)

        def written(results: list[tuple[int, list[Step | None]]]) -> None:
            for _, steps in results:
                for step in steps:
                    self._written.keep(step)
            self._log.wrote_until(results[-1][0], self._start_writeback)

        share_work(places, write, self._helper, written)

    def _write_run(
        self, segment: Segment, buffers: _ThreadBuffers, place: _Place, stamp: Stamp
    ) -> list[Step | None]:
        """On either thread: read, fill in, write, and scan the run while it is in the cache."""
        run, offsets, position = place
        records, places = run.load(buffers.memory), encode_places(run.queues)
        scratch = buffers.scratch
        steps: list[Step | None] = []
        done = 0
        while done < len(records):
            taken, end = relocate_run(
                records, done, offsets, *stamp, scratch, 0, len(scratch), position, places
            )
            if taken == done:
                if len(scratch) >= len(records) + BLANK_RESERVE:
                    raise MalformedRecord(done, "the run has changed since it was inspected")
                # One record that is larger than the buffer.
                scratch = memoryview(bytearray(len(records) + BLANK_RESERVE))
                continue
            segment.file.write(position - segment.base, scratch[:end])
            steps.append(self._written.scan(scratch, end, position))
            done = taken
            position += end
        return steps
