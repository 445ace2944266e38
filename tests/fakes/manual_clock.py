"""A clock that moves only when a test says so."""

from __future__ import annotations


class ManualClock:
    """Implements `broker_core.runtime.clock.Clock`."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._elapsed_ms = 0.0
        self._wall_ms = float(wall_ms)

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._elapsed_ms / 1000

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        return int(self._wall_ms)

    def advance(self, ms: float) -> None:
        """Let `ms` pass on both clocks."""
        if ms < 0:
            raise ValueError("monotonic time never goes back; use set_wall")
        self._elapsed_ms += ms
        self._wall_ms += ms

    def set_wall(self, ms: int) -> None:
        """Step the wall clock, as an operator or NTP may, without any time passing."""
        self._wall_ms = float(ms)
