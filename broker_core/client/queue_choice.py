"""Which queue a message goes to. Pure, except for the counter of a turn."""

from __future__ import annotations

from collections.abc import Collection

from broker_core.client.topic_queues import Queues
from broker_core.codec.java_hash import java_hash
from broker_core.codec.message_queue import MessageQueue


class Turn:
    """Queues in turn."""

    __slots__ = ("_next",)

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def choose(self, queues: Queues, avoid: Collection[str] = ()) -> MessageQueue:
        """The next of `queues`; on a broker that is not to be avoided if there is one."""
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
    """The queue that Java's clients choose by hash for the same key and the same queues."""
    return queues[abs(java_hash(key.encode("utf-8", "replace"))) % len(queues)]
