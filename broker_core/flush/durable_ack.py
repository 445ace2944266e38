"""Where puts wait until their bytes are durable, with a deadline.

One object for all waiters of a store: a future per put, settled in the order of positions by the
watermark. Deadlines are looked at when the store ticks, so that a put costs no timer of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque

from broker_core.protocol_codes import PutStatus
from broker_core.runtime.clock import Clock
from broker_core.runtime.watermark import Watermark

StatusFuture = asyncio.Future[PutStatus]


class DurableAcks:
    """Owner thread only."""

    def __init__(self, flushed: Watermark, clock: Clock, timeout_ms: int) -> None:
        self._flushed = flushed
        self._clock = clock
        self._timeout_s = timeout_ms / 1000
        # (deadline, future), rising by deadline because the timeout is the same for all.
        self._deadlines: deque[tuple[float, StatusFuture]] = deque()

    def wait(self, position: int) -> StatusFuture:
        """PUT_OK once `position` is flushed; the bytes stay in the log whatever the answer is."""
        future: StatusFuture = asyncio.get_running_loop().create_future()

        def settle(failure: BaseException | None) -> None:
            # It may have expired or been cancelled in the meantime.
            if not future.done():
                ok = failure is None
                future.set_result(PutStatus.PUT_OK if ok else PutStatus.UNKNOWN_ERROR)

        self._flushed.when(position, settle)
        if not future.done():
            self._deadlines.append((self._clock.monotonic() + self._timeout_s, future))
        return future

    def tick(self) -> None:
        """Answer FLUSH_DISK_TIMEOUT to those who have waited long enough."""
        deadlines = self._deadlines
        now = self._clock.monotonic()
        while deadlines and (deadlines[0][0] <= now or deadlines[0][1].done()):
            future = deadlines.popleft()[1]
            if not future.done():
                future.set_result(PutStatus.FLUSH_DISK_TIMEOUT)
