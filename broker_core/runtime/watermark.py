"""A position that only grows, and its waiters.

Owned by one thread (the event loop, or the only thread of a simulation); every method is called
there. This is the mechanism of group commit: one advance releases all waiters below it.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable

Waiter = Callable[[BaseException | None], None]


class Watermark:
    """Current position, the waiters above it, and the failure that ended it, if any."""

    __slots__ = ("_failure", "_position", "_subscribers", "_waiters")

    def __init__(self, position: int) -> None:
        self._position = position
        # Ascending by position. Most waiters wait for the newest position, so this is an append.
        self._waiters: deque[tuple[int, Waiter]] = deque()
        self._failure: BaseException | None = None
        self._subscribers: list[Callable[[], object]] = []

    @property
    def position(self) -> int:
        """The highest position reached."""
        return self._position

    @property
    def waiting(self) -> int:
        """How many waiters are above the position."""
        return len(self._waiters)

    def subscribe(self, subscriber: Callable[[], object]) -> None:
        """Call `subscriber()` on every `announce`."""
        self._subscribers.append(subscriber)

    def announce(self) -> None:
        """Notify the subscribers; the owner calls this after the work that must come first."""
        for subscriber in self._subscribers:
            subscriber()

    def advance(self, position: int) -> None:
        """Advance to `position` and wake the waiters at or below it, lowest first."""
        if position <= self._position:
            return
        self._position = position
        if self._waiters:
            self._wake(self._waiters, position, None)

    def advance_to_waiter(self, number: int, limit: int) -> None:
        """Advance far enough to wake the first `number` waiters, at most to `limit`."""
        if 0 < number <= len(self._waiters):
            self.advance(min(self._waiters[number - 1][0], limit))

    def fail(self, failure: BaseException) -> None:
        """Fail every waiter: no higher position will be reached."""
        self._failure = failure
        waiters, self._waiters = self._waiters, deque()
        if waiters:
            self._wake(waiters, waiters[-1][0], failure)

    def when(self, position: int, waiter: Waiter) -> None:
        """Call `waiter(None)` once `position` is reached, or `waiter(error)` if it never can be."""
        waiters = self._waiters
        if position <= self._position:
            waiter(None)
        elif self._failure is not None:
            waiter(self._failure)
        elif not waiters or waiters[-1][0] <= position:
            waiters.append((position, waiter))
        else:
            insort(waiters, (position, waiter), key=lambda entry: entry[0])

    def _wake(
        self, waiters: deque[tuple[int, Waiter]], position: int, failure: BaseException | None
    ) -> None:
        try:
            while waiters and waiters[0][0] <= position:
                waiters.popleft()[1](failure)
        finally:
            # A waiter raised: still call the others, since there may be no further advance.
            if waiters and waiters[0][0] <= position:
                self._wake(waiters, position, failure)

    async def reached(self, position: int) -> None:
        """Wait for `position`; raises the failure when it can never be reached."""
        if position <= self._position:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(failure: BaseException | None) -> None:
            # The waiter may have been cancelled by a timeout in the meantime.
            if future.done():
                return
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)

        self.when(position, settle)
        await future
