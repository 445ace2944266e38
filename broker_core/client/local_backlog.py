"""Messages of one queue that were fetched and are not acknowledged yet. Pure.

The offset to commit is that of the oldest message not acknowledged, however many behind it are: a
crash then repeats some messages and loses none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from broker_core.client.received_message import ReceivedMessage


class LocalBacklog:
    """Grows at its end by `add`, shrinks anywhere by `acknowledge`."""

    __slots__ = ("_held", "_next_offset", "_order", "_size", "_untaken")

    def __init__(self, start_offset: int) -> None:
        self._next_offset = start_offset
        self._held: dict[int, ReceivedMessage] = {}
        # Offsets in order; those acknowledged out of turn leave when they reach the front.
        self._order: deque[int] = deque()
        self._untaken: deque[ReceivedMessage] = deque()
        self._size = 0

    @property
    def count(self) -> int:
        """Messages not acknowledged."""
        return len(self._held)

    @property
    def size(self) -> int:
        """Their bytes."""
        return self._size

    @property
    def span(self) -> int:
        """Offsets between the oldest and the newest of them."""
        return self._order[-1] - self._order[0] if self._order else 0

    @property
    def first_offset(self) -> int:
        """Of the oldest message; 0 if there is none."""
        return self._order[0] if self._order else 0

    @property
    def last_offset(self) -> int:
        """Of the newest message that was not acknowledged out of turn; 0 if there is none."""
        return self._order[-1] if self._order else 0

    @property
    def next_offset(self) -> int:
        """Where the next fetch starts."""
        return self._next_offset

    @property
    def committable_offset(self) -> int:
        """Everything before this is done."""
        return self._order[0] if self._order else self._next_offset

    def add(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Messages of one fetch, and where the next one starts: filtered ones count as done."""
        for message in messages:
            offset = message.queue_offset
            # An answer that repeats what is here, or was, changes nothing.
            if offset < self._next_offset or offset in self._held:
                continue
            self._held[offset] = message
            self._order.append(offset)
            self._untaken.append(message)
            self._size += message.size
            self._next_offset = offset + 1
        self._next_offset = max(self._next_offset, next_offset)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """The next messages that nobody has taken; they stay until acknowledged."""
        untaken = self._untaken
        return [untaken.popleft() for _ in range(min(count_max, len(untaken)))]

    def give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages that were taken are to be taken again, before all others."""
        held = self._held
        self._untaken.extendleft(m for m in reversed(messages) if m.queue_offset in held)

    def acknowledge(self, messages: Iterable[ReceivedMessage]) -> int:
        """These are done. Returns the offset to commit now."""
        held, order = self._held, self._order
        for message in messages:
            if held.pop(message.queue_offset, None) is not None:
                self._size -= message.size
        while order and order[0] not in held:
            order.popleft()
        return self.committable_offset
