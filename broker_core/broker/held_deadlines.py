"""Deadlines of held requests, with one timer for the earliest: held pulls and held pops.

Ended requests stay in the list until they are due or the majority, so that ending one takes
constant time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

from broker_core.runtime.clock import Clock

# Ended requests are dropped when there are more than this, and than live ones.
ENDED_MAX: Final = 1_024


class HeldRequest(Protocol):
    """A request without an answer yet."""

    @property
    def is_live(self) -> bool:
        """False once it is answered or its connection is closed."""


Held = TypeVar("Held", bound=HeldRequest)


class HeldDeadlines(Generic[Held]):
    """Event loop only. `expired(held)` ends a live request whose deadline has passed."""

    def __init__(self, clock: Clock, expired: Callable[[Held], object]) -> None:
        self._clock = clock
        self._expired = expired
        self._entries: list[tuple[float, int, Held]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, held: Held, timeout_ms: float) -> None:
        """Let a request expire in `timeout_ms`."""
        deadline = self._clock.monotonic() + timeout_ms / 1000
        heapq.heappush(self._entries, (deadline, next(self._numbers), held))
        self._arm()

    def drop_ended(self, live_count: int) -> None:
        """Drop ended requests when they are the majority; `live_count` are not."""
        if len(self._entries) > ENDED_MAX + 2 * live_count:
            self._entries = [entry for entry in self._entries if entry[2].is_live]
            heapq.heapify(self._entries)

    def clear(self) -> None:
        """Forget all requests and stop the timer."""
        self._entries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def expire(self) -> None:
        """End the requests that are due; called by the timer."""
        self._timer = None
        now = self._clock.monotonic()
        entries = self._entries
        while entries and (entries[0][0] <= now or not entries[0][2].is_live):
            held = heapq.heappop(entries)[2]
            if held.is_live:
                self._expired(held)
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the earliest deadline, skipping ended requests."""
        entries = self._entries
        while entries and not entries[0][2].is_live:
            heapq.heappop(entries)
        if not entries:
            return
        due = entries[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        delay = max(due - self._clock.monotonic(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay, self.expire)
