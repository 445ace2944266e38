"""The unreplicated tail: the end of a log that is dispatched but hidden from readers.

A SYNC_MASTER that restarts recovers its whole log, so that numbering, sinks and delayed messages
continue after it. What no slave had when it stopped stays hidden until a slave has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from broker_core.storage.derived.consume_queue import ConsumeQueue, QueueDamaged
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet, QueueKey
from broker_core.storage.log.append_group import GROUP_QUEUE
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.log.log_walk import group_header_at


class UnreplicatedTail(NamedTuple):
    """Readers see records that end at or below `position`; all of it once slaves have `until`."""

    position: int
    until: int
    ends: dict[QueueKey, int]
    """The visible end of every queue that has hidden entries."""
    shown_topics: frozenset[str]
    """Topics of the broker itself, which are never hidden."""

    def hides(self, end: int, topic: str) -> bool:
        """Whether readers may not see a record of `topic` that ends at `end`."""
        return end > self.position and topic not in self.shown_topics


def find_tail(
    log: CommitLog,
    queues: ConsumeQueueSet,
    heal: Callable[[ConsumeQueue], None],
    position: int,
    until: int,
    shown_topics: Collection[str],
) -> UnreplicatedTail:
    """The tail after `position`; a group that `position` cuts is hidden as a whole."""
    position = _before_group(log, queues, heal, position)
    shown = frozenset(shown_topics)
    ends: dict[QueueKey, int] = {}
    for queue in queues:
        if queue.topic.decode("ascii", "replace") not in shown:
            end = first_behind(queue, heal, position)
            if end < queue.max_offset:
                ends[queue.key] = end
    return UnreplicatedTail(position, until, ends, shown)


def _before_group(
    log: CommitLog,
    queues: ConsumeQueueSet,
    heal: Callable[[ConsumeQueue], None],
    position: int,
) -> int:
    notes = queues.find(*GROUP_QUEUE)
    if notes is None:
        return position
    # The last group that starts below `position`, found by its header in the queue of notes.
    offset = first_behind(notes, heal, position)
    for candidate in (offset - 1, offset):
        if not notes.min_offset <= candidate < notes.max_offset:
            continue
        unit = notes.unit(candidate)
        header = None if unit is None else group_header_at(log.segments, unit[0])
        if header is not None and header.start < position < header.end:
            return header.start
    return position


def first_behind(queue: ConsumeQueue, heal: Callable[[ConsumeQueue], None], position: int) -> int:
    """Offset of the first entry whose record ends after `position`."""
    try:
        return _search(queue, position)
    except QueueDamaged:
        heal(queue)
        return _search(queue, position)


def _search(queue: ConsumeQueue, position: int) -> int:
    low, high = queue.min_offset, queue.max_offset
    last = queue.unit(high - 1) if low < high else None
    if last is not None and last[0] + last[1] <= position:
        # The case for almost every queue after a clean stop.
        return high
    while low < high:
        middle = (low + high) // 2
        unit = queue.unit(middle)
        if unit is not None and unit[0] + unit[1] <= position:
            low = middle + 1
        else:
            high = middle
    return low
