"""Assigns queue offsets and store times: the next offset of each queue and the last time.

Owned by the appending thread. Ahead of the consume queues by the records not dispatched yet.
"""

from __future__ import annotations

from array import array

from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet, QueueKey


class QueueCounters:
    """Starts from the queues, which recovery has brought up to the end of the log."""

    def __init__(self, queues: ConsumeQueueSet, store_timestamp: int) -> None:
        self.next = {queue.key: queue.max_offset for queue in queues}
        """Next offset by queue; a missing queue starts at 0. Changed by appends only."""
        self.timestamp = store_timestamp
        """Store time of the last append."""

    def next_offsets(self, queues: tuple[QueueKey, ...]) -> array[int]:
        """The next offset of each queue; the encoder advances them."""
        known = self.next
        return array("q", [known.get(key, 0) for key in queues])

    def advance(self, queues: tuple[QueueKey, ...], offsets: array[int]) -> None:
        """Store the numbers after a successful append."""
        self.next.update(zip(queues, offsets, strict=True))

    def restore(self, known: dict[QueueKey, int | None]) -> None:
        """Restore earlier numbers after an append was taken back; None: the queue was new."""
        for key, following in known.items():
            if following is None:
                self.next.pop(key, None)
            else:
                self.next[key] = following

    def stamp(self, wall_ms: int) -> int:
        """A store time that never decreases, even when the wall clock is set back."""
        if wall_ms > self.timestamp:
            self.timestamp = wall_ms
        return self.timestamp
