"""Which offsets an append group took in each queue, read back from the log. Owns nothing."""

from __future__ import annotations

from array import array

from broker_core.errors import CorruptRecord
from broker_core.storage.append_group import GROUP_QUEUE
from broker_core.storage.commit_log import CommitLog
from broker_core.storage.consume_queue import UNIT
from broker_core.storage.log_walk import walk_step

# The walk computes due times along the way; nobody looks at them here.
_NO_DELAYS = memoryview(array("q", (0,)))

Ranges = dict[tuple[str, int], tuple[int, int]]


def group_ranges(log: CommitLog, start: int, end: int) -> Ranges:
    """(topic, queue id) -> (first offset, next offset); empty when the log has lost the group.

    Raises `CorruptRecord` for a record that cannot be read.
    """
    ranges: Ranges = {}
    position = start
    if start < log.start or end > log.position:
        return ranges
    while position < end:
        step = walk_step(log.segments, position, end, check_crc=0, delays=_NO_DELAYS)
        if step.scan is None or step.end == position:
            raise CorruptRecord("", position, step.reason or "no record where one must be")
        for queue, (first, units) in step.scan.queues.items():
            if queue == GROUP_QUEUE:
                continue
            key = (queue[0].decode("ascii"), queue[1])
            begin = ranges[key][0] if key in ranges else first
            ranges[key] = (begin, first + len(units) // UNIT.size)
        position = step.end
    return ranges
