"""Fetched messages of one queue that are not yet acknowledged. Pure.

The offset to commit is that of the oldest unacknowledged message, so a crash repeats some messages
and loses none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from broker_core.client.pull.received_message import ReceivedMessage


class LocalBacklog:
    """Grows at its end by `add`, shrinks anywhere by `acknowledge`."""

    __slots__ = ("_held", "_next_offset", "_order", "_size", "_untaken")

    def __init__(self, start_offset: int) -> None:
        self._next_offset = start_offset
        self._held: dict[int, ReceivedMessage] = {}
        # Offsets in order; those acknowledged out of order are removed when they reach the front.
        self._order: deque[int] = deque()
        self._untaken: deque[ReceivedMessage] = deque()
        self._size = 0

    @property
    def count(self) -> int:
        """Number of unacknowledged messages."""
        return len(self._held)

    @property
    def size(self) -> int:
        """Their bytes."""
        return self._size

    @property
    def span(self) -> int:
        """Offsets between the oldest and the newest message."""
        return self._order[-1] - self._order[0] if self._order else 0

    @property
    def first_offset(self) -> int:
        """Offset of the oldest message; 0 if there is none."""
        return self._order[0] if self._order else 0

    @property
    def last_offset(self) -> int:
        """Offset of the newest unacknowledged message; 0 if there is none."""
        return self._order[-1] if self._order else 0

    @property
    def next_offset(self) -> int:
        """Where the next fetch starts."""
        return self._next_offset

    @property
    def committable_offset(self) -> int:
        """All messages before this offset are acknowledged."""
        return self._order[0] if self._order else self._next_offset

    def add(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Add the messages of a fetch; filtered ones before `next_offset` count as acknowledged."""
        for message in messages:
            offset = message.queue_offset
            # Messages that were added before are ignored.
            if offset < self._next_offset or offset in self._held:
                continue
            self._held[offset] = message
            self._order.append(offset)
            self._untaken.append(message)
            self._size += message.size
            self._next_offset = offset + 1
        self._next_offset = max(self._next_offset, next_offset)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """The next messages that were not taken; they stay until acknowledged."""
        untaken = self._untaken
        return [untaken.popleft() for _ in range(min(count_max, len(untaken)))]

    def give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put taken messages back to the front."""
        held = self._held
        self._untaken.extendleft(m for m in reversed(messages) if m.queue_offset in held)

    def acknowledge(self, messages: Iterable[ReceivedMessage]) -> int:
        """Acknowledge messages. Returns the offset to commit."""
        held, order = self._held, self._order
        for message in messages:
            if held.pop(message.queue_offset, None) is not None:
                self._size -= message.size
        while order and order[0] not in held:
            order.popleft()
        return self.committable_offset
