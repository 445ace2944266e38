"""Rebuilds derived files from the log: one damaged queue, or the index from a position on."""

from __future__ import annotations

from broker_core.codec.records.record_scan import Scan
from broker_core.errors import CorruptStore
from broker_core.storage.derived.consume_queue import ConsumeQueue
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet
from broker_core.storage.derived.message_index import IndexDamaged, MessageIndex
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.log.log_walk import walk_step


class LogSlices:
    """Iterates over scans of `[start, end)`; a record that cannot be read is an error."""

    def __init__(
        self,
        log: CommitLog,
        start: int,
        end: int,
        delays: memoryview,
        *,
        index_tags: bool = False,
    ) -> None:
        self._log = log
        self._position = start
        self._end = end
        self._delays = delays
        self._index_tags = index_tags

    def __iter__(self) -> LogSlices:
        return self

    def __next__(self) -> Scan:
        while self._position < self._end:
            # Verified, because damaged keys or offsets would give a wrong index or queue.
            step = walk_step(
                self._log.segments,
                self._position,
                self._end,
                check_crc=self._log.check_level,
                delays=self._delays,
                index_tags=self._index_tags,
            )
            if step.scan is None or step.end == self._position:
                raise self._log.corrupt_record(self._position, step.reason)
            self._position = step.end
            if step.scan.count:
                return step.scan
        raise StopIteration


def rebuild_queue(
    log: CommitLog, queues: ConsumeQueueSet, queue: ConsumeQueue, until: int, delays: memoryview
) -> None:
    """Rebuild the files of `queue` from the log below `until`.

    Nothing is removed when the log cannot be read.
    """
    floor, expected = queue.min_offset, queue.max_offset
    units = [
        found
        for scan in LogSlices(log, log.start, until, delays)
        if (found := scan.queues.get(queue.key)) is not None
    ]
    queue.clear()
    for found in units:
        queue.append(*found)
    if queue.max_offset < expected:
        if queue.max_offset:
            raise CorruptStore(
                queue.directory, queue.max_offset, f"the log lacks entries up to {expected}"
            )
        queue.continue_at(expected, log.start)
    # Entries of a topic that was deleted are still in the log; they stay deleted.
    queue.min_offset = max(queue.min_offset, min(floor, queue.max_offset))
    queues.mark_dirty(queue)


def rebuild_index(
    log: CommitLog, index: MessageIndex, start: int, until: int, delays: memoryview, wall_ms: int
) -> None:
    """Index the keys of `[start, until)` again, after the files from `start` on were dropped.

    Goes back further when the file before `start` turns out to be damaged, too.
    """
    while True:
        try:
            return _put_keys(log, index, start, until, delays, wall_ms)
        except IndexDamaged as damage:
            start = damage.position
            index.drop_from(start)


def _put_keys(
    log: CommitLog, index: MessageIndex, start: int, until: int, delays: memoryview, wall_ms: int
) -> None:
    first = True
    for scan in LogSlices(log, max(start, log.start), until, delays, index_tags=index.with_tags):
        known = index.known_prefix(scan.keys) if first and scan.keys else 0
        first = first and not scan.keys
        index.append(scan.keys, wall_ms, known)
