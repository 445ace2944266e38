"""Builds derived files anew from the log: one damaged queue, or the index from some position on."""

from __future__ import annotations

from broker_core.codec.record_scan import Scan
from broker_core.errors import CorruptRecord, CorruptStore
from broker_core.storage.commit_log import CommitLog
from broker_core.storage.consume_queue import ConsumeQueue
from broker_core.storage.consume_queue_set import ConsumeQueueSet
from broker_core.storage.log_walk import walk_step
from broker_core.storage.message_index import MessageIndex
from broker_core.storage.segment_file import segment_name
from broker_core.storage.segment_sequence import COMMIT_LOG_DIR


class LogSlices:
    """Iterates over scans of `[start, end)`; a record that cannot be read is an error."""

    def __init__(self, log: CommitLog, start: int, end: int, delays: memoryview) -> None:
        self._log = log
        self._position = start
        self._end = end
        self._delays = delays

    def __iter__(self) -> LogSlices:
        return self

    def __next__(self) -> Scan:
        while self._position < self._end:
            step = walk_step(
                self._log.segments, self._position, self._end, check_crc=False, delays=self._delays
            )
            if step.scan is None or step.end == self._position:
                raise self._corrupt(step.reason)
            self._position = step.end
            if step.scan.count:
                return step.scan
        raise StopIteration

    def _corrupt(self, reason: str) -> CorruptRecord:
        base = self._position - self._position % self._log.segments.size
        path = f"{COMMIT_LOG_DIR}/{segment_name(base)}"
        return CorruptRecord(path, self._position, reason or "no record where one must be")


def rebuild_queue(
    log: CommitLog, queues: ConsumeQueueSet, queue: ConsumeQueue, until: int, delays: memoryview
) -> None:
    """Replace the files of `queue` by what the log below `until` says."""
    expected = queue.max_offset
    queue.clear()
    for scan in LogSlices(log, log.start, until, delays):
        found = scan.queues.get(queue.key)
        if found is not None:
            queue.append(*found)
    if queue.max_offset < expected:
        if queue.max_offset:
            raise CorruptStore(
                queue.directory, queue.max_offset, f"the log lacks entries up to {expected}"
            )
        queue.continue_at(expected)
    queues.mark_dirty(queue)


def rebuild_index(
    log: CommitLog, index: MessageIndex, start: int, until: int, delays: memoryview, wall_ms: int
) -> None:
    """Put the keys of `[start, until)` again, after the files from `start` on were dropped."""
    first = True
    for scan in LogSlices(log, max(start, log.start), until, delays):
        known = index.known_prefix(scan.keys) if first and scan.keys else 0
        first = first and not scan.keys
        index.append(scan.keys, wall_ms, known)
