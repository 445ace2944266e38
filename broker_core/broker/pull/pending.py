"""Held pulls: woken by a message for their queue, or by their deadline.

Owns the held pulls and one timer. Holding and ending a pull takes constant time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

from broker_core.access.asking_account import account_name
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

_HELD: Final = "broker.held_pulls"

# Ended pulls are dropped from the deadlines when there are more than this, and than held ones.
ENDED_MAX: Final = 1_024

QueueKey = tuple[bytes, int]
# Tries again; returns whether it has answered. True as the argument forces an answer.
Retry = Callable[[bool], bool]


class _HeldPull:
    __slots__ = ("connection", "key", "retry")

    def __init__(self, connection: Connection, key: QueueKey, retry: Retry) -> None:
        self.connection = connection
        self.key = key
        # None once it is answered or its connection is gone.
        self.retry: Retry | None = retry


class PendingPulls:
    """Every held pull of a broker, by queue and by deadline."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Dictionaries as ordered sets.
        self._by_queue: dict[QueueKey, dict[_HeldPull, None]] = {}
        self._deadlines: list[tuple[float, int, _HeldPull]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._live = 0
        self._is_released = False

    def __len__(self) -> int:
        return self._live

    def hold(
        self,
        connection: Connection,
        opaque: int,
        key: QueueKey,
        timeout_ms: float,
        retry: Retry,
    ) -> bool:
        """Hold the request `opaque` until `retry` has answered; at the deadline it must.

        False when the peer holds too many.
        """
        if self._is_released:
            retry(True)
            return True
        if not connection.load.suspend(opaque, account_name(connection)):
            return False
        held = _HeldPull(connection, key, retry)
        self._by_queue.setdefault(key, {})[held] = None
        of_connection = connection.attributes.get(_HELD)
        if of_connection is None:
            of_connection = connection.attributes[_HELD] = set()
            connection.on_close(self._connection_closed)
        of_connection.add(held)
        deadline = self._clock.monotonic() + timeout_ms / 1000
        heapq.heappush(self._deadlines, (deadline, next(self._numbers), held))
        self._live += 1
        self._arm()
        return True

    def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
        """A queue has new messages."""
        key = (topic, queue_id)
        held_here = self._by_queue.get(key)
        if held_here is None:
            return
        # Pulls that are held during the retries go into a new set.
        del self._by_queue[key]
        for held in held_here:
            self._try(held, final=False)
        still = {held: None for held in held_here if held.retry is not None}
        if still:
            self._by_queue[key] = still | self._by_queue.get(key, {})
        self._drop_ended()

    def release_all(self) -> None:
        """Answer every held pull now and every later one at once: the broker stops."""
        self._is_released = True
        for held_here in list(self._by_queue.values()):
            for held in held_here:
                self._try(held, final=True)
        self._by_queue.clear()
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Inside

    def _try(self, held: _HeldPull, *, final: bool) -> None:
        retry = held.retry
        if retry is not None and retry(final):
            self._end(held)

    def _end(self, held: _HeldPull) -> None:
        held.retry = None
        self._live -= 1
        held.connection.attributes[_HELD].discard(held)

    def _connection_closed(self, connection: Connection) -> None:
        for held in list(connection.attributes[_HELD]):
            self._end(held)
            self._forget(held)
        self._drop_ended()

    def _forget(self, held: _HeldPull) -> None:
        held_here = self._by_queue.get(held.key)
        if held_here is None:
            return
        held_here.pop(held, None)
        if not held_here:
            del self._by_queue[held.key]

    def _drop_ended(self) -> None:
        """Drop the deadlines of ended pulls when they are the majority."""
        if len(self._deadlines) > ENDED_MAX + 2 * self._live:
            self._deadlines = [one for one in self._deadlines if one[2].retry is not None]
            heapq.heapify(self._deadlines)

    def _arm(self) -> None:
        """Set the timer to the earliest deadline, skipping answered pulls."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].retry is None:
            heapq.heappop(deadlines)
        if not deadlines:
            return
        due = deadlines[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        delay = max(due - self._clock.monotonic(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now or deadlines[0][2].retry is None):
            held = heapq.heappop(deadlines)[2]
            if held.retry is not None:
                self._try(held, final=True)
                self._forget(held)
        self._arm()
