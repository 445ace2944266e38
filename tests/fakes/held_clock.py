"""A wall clock that stands still until a test moves it, for servers on a real event loop."""

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
