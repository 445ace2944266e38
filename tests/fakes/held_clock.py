"""Clocks that stand still until a test moves them, for servers on a real event loop."""

from __future__ import annotations

import time


class HeldClock:
    """Implements `broker_core.runtime.clock.Clock`; deadlines run in real time.

    What is due at a time has to wait for the test, however long the machine takes for the steps
    before.
    """

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._wall_ms = time.time_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        return self._wall_ms

    def advance(self, ms: int) -> None:
        """Step the wall clock."""
        self._wall_ms += ms


class StoppedClock(HeldClock):
    """Deadlines wait for the test, too: nothing expires between two of its steps.

    For services that look at the clock when a timer of the loop fires, and set it again if nothing
    is due.
    """

    def __init__(self) -> None:
        super().__init__()
        self._monotonic_ms = time.monotonic_ns() // 1_000_000

    def monotonic(self) -> float:  # type: ignore[override]
        """Seconds."""
        return self._monotonic_ms / 1000

    def advance(self, ms: int) -> None:
        """Step both."""
        super().advance(ms)
        self._monotonic_ms += ms
