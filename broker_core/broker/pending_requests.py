"""Held requests, for pulls and pops: which are live, of which connection, and until when.

One timer waits for the earliest deadline. Ended requests stay in the list of deadlines until they
are due or the majority, so that ending one takes constant time.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Generic, Protocol, TypeVar

from broker_core.access.asking_account import account_name
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

# Ended requests are dropped when there are more than this, and than live ones.
ENDED_MAX: Final = 1_024


Retry = TypeVar("Retry", bound=Callable[..., bool])


class Expiring(Protocol):
    """What has a deadline."""

    @property
    def is_live(self) -> bool:
        """False once it has ended."""


class PendingRequest(Generic[Retry]):
    """A request without an answer yet, and the function that tries again."""

    __slots__ = ("connection", "retry")

    def __init__(self, connection: Connection, retry: Retry) -> None:
        self.connection = connection
        # None once it is answered or its connection is closed.
        self.retry: Retry | None = retry

    @property
    def is_live(self) -> bool:
        """False once it is answered or its connection is closed."""
        return self.retry is not None


Held = TypeVar("Held", bound=PendingRequest[Any])


class PendingRequests(Generic[Held]):
    """Event loop only. Holding and ending a request takes constant time.

    `name` is the connection's attribute with its requests. `expired(held)` answers and ends a live
    request whose deadline has passed, `closed(held)` ends one whose connection is gone.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        expired: Callable[[Held], object],
        closed: Callable[[Held], object],
    ) -> None:
        self._name = name
        self._closed = closed
        self.deadlines: HeldDeadlines[Held] = HeldDeadlines(clock, expired)
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def admits(self, connection: Connection, opaque: int) -> bool:
        """Count the request `opaque` as held; False when the peer holds too many."""
        return connection.load.suspend(opaque, account_name(connection))

    def add(self, held: Held, timeout_ms: float) -> None:
        """Keep an admitted request until it ends; it expires in `timeout_ms`."""
        connection = held.connection
        of_connection = connection.attributes.get(self._name)
        if of_connection is None:
            of_connection = connection.attributes[self._name] = set()
            connection.on_close(self._connection_closed)
        of_connection.add(held)
        self._live += 1
        self.deadlines.add(held, timeout_ms)

    def end(self, held: Held) -> None:
        """Forget a request that is answered; ending it twice is harmless."""
        if held.is_live:
            held.retry = None
            self._live -= 1
            held.connection.attributes[self._name].discard(held)

    def drop_ended(self) -> None:
        """After some have ended: drop their deadlines when they are the majority."""
        self.deadlines.drop_ended(self._live)

    def _connection_closed(self, connection: Connection) -> None:
        for held in list(connection.attributes[self._name]):
            self._closed(held)
        self.drop_ended()


Dated = TypeVar("Dated", bound=Expiring)


class HeldDeadlines(Generic[Dated]):
    """Event loop only. `expired(held)` ends a live request whose deadline has passed."""

    def __init__(self, clock: Clock, expired: Callable[[Dated], object]) -> None:
        self._clock = clock
        self._expired = expired
        self._entries: list[tuple[float, int, Dated]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, held: Dated, timeout_ms: float) -> None:
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
