"""Time as a constructor argument: the `Clock` protocol and the clock of the machine.

Durations and deadlines use `monotonic`, which never jumps. Only what is stored or shown to people
uses `wall_ms`, which may jump either way. No other module reads the time.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def wall_ms(self) -> int:
        """Epoch milliseconds; may jump in both directions."""


class SystemClock:
    """The clock of the machine."""

    # The function itself, because every put calls it twice.
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        """Epoch milliseconds; may jump in both directions."""
        return time.time_ns() // 1_000_000


async def sleep(seconds: float) -> None:
    """Pause a task, for example between two attempts; a cancellation ends it early."""
    # Slow to import, and processes that only start a broker do not need it.
    import asyncio

    await asyncio.sleep(seconds)


class SteadyTime:
    """Wall time at construction, advanced by the monotonic clock.

    For expiry by age: a wall clock that is temporarily wrong must not expire data.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made_at_ms = int(clock.monotonic() * 1000)
        self._made_ms = clock.wall_ms()

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since construction."""
        return int(self._clock.monotonic() * 1000) - self._made_at_ms

    @property
    def now_ms(self) -> int:
        """Epoch milliseconds that never jump."""
        return self._made_ms + self.elapsed_ms
