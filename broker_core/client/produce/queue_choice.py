"""The choice of a message's queue. Pure, except for the round-robin counter."""

from __future__ import annotations

from collections.abc import Collection

from broker_core.client.connection.topic_queues import Queues
from broker_core.codec.native import java_hash
from broker_core.codec.wire.bodies.message_queue import MessageQueue


class Turn:
    """Round robin over queues."""

    __slots__ = ("_next",)

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def choose(self, queues: Queues, avoid: Collection[str] = ()) -> MessageQueue:
        """The next queue, preferably not on a broker in `avoid`."""
        count = len(queues)
        first = self._next % count
        self._next = first + 1
        if avoid and queues[first].broker_name in avoid:
            for number in range(first + 1, first + count):
                if queues[number % count].broker_name not in avoid:
                    self._next = number % count + 1
                    return queues[number % count]
        return queues[first]


def queue_for_key(queues: Queues, key: str) -> MessageQueue:
    """The queue of a key, by the same hash as in Java clients."""
    return queues[abs(java_hash(key.encode("utf-8", "replace"))) % len(queues)]
