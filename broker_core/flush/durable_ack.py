"""Waiters for durable bytes, with a deadline.

One object for all waiters of a store: a future per put, settled in the order of positions by the
watermark. Deadlines are checked when the store ticks, so that a put needs no timer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from broker_core.protocol_codes import PutStatus
from broker_core.runtime.clock import Clock
from broker_core.runtime.watermark import Watermark

_PUT_OK = PutStatus.PUT_OK

StatusFuture = asyncio.Future[PutStatus]
StatusCallback = Callable[[PutStatus], object]


class _Waiter:
    """Calls back once: when flushed, failed or expired."""

    __slots__ = ("_callback",)

    def __init__(self, callback: StatusCallback) -> None:
        self._callback: StatusCallback | None = callback

    @property
    def is_settled(self) -> bool:
        return self._callback is None

    def settle(self, status: PutStatus) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(status)

    def __call__(self, failure: BaseException | None) -> None:
        self.settle(_PUT_OK if failure is None else PutStatus.UNKNOWN_ERROR)


class DurableAcks:
    """Owner thread only."""

    def __init__(
        self,
        flushed: Watermark,
        clock: Clock,
        timeout_ms: int,
        late: PutStatus = PutStatus.FLUSH_DISK_TIMEOUT,
    ) -> None:
        self._late = late
        self._flushed = flushed
        self._clock = clock
        self._timeout_s = timeout_ms / 1000
        # (deadline, waiter), ascending because the timeout is the same for all.
        self._deadlines: deque[tuple[float, _Waiter]] = deque()

    def when(self, position: int, callback: StatusCallback) -> None:
        """Call `callback(PUT_OK)` once `position` is flushed, or with the status of the failure.

        The bytes stay in the log in any case.
        """
        waiter = _Waiter(callback)
        self._flushed.when(position, waiter)
        if not waiter.is_settled:
            self._deadlines.append((self._clock.monotonic() + self._timeout_s, waiter))

    def wait(self, position: int) -> StatusFuture:
        """`when` as a future."""
        return as_future(partial(self.when, position))

    def tick(self) -> None:
        """Answer `late` to waiters whose deadline has passed."""
        deadlines = self._deadlines
        now = self._clock.monotonic()
        while deadlines and (deadlines[0][0] <= now or deadlines[0][1].is_settled):
            deadlines.popleft()[1].settle(self._late)


def as_future(when: Callable[[StatusCallback], None]) -> StatusFuture:
    """A future with the status that `when` passes to its callback."""
    future: StatusFuture = asyncio.get_running_loop().create_future()

    def settle(status: PutStatus) -> None:
        # It may have been cancelled in the meantime.
        if not future.done():
            future.set_result(status)

    when(settle)
    return future
