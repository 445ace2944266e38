"""A clock that a test moves forward."""

from __future__ import annotations

from typing import Final

from broker_core.errors import InvalidArgument
from broker_core.runtime.clock import SystemClock

ADVANCE_MAX_S: Final = 366 * 86_400.0


class AdvancedClock(SystemClock):
    """The clock of the machine, moved forward on request. It never goes back."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self._ahead_s = ahead_s
        self._system = SystemClock()

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return self._system.monotonic() + self._ahead_s

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        return self._system.wall_ms() + int(self._ahead_s * 1000)

    @property
    def ahead_s(self) -> float:
        """How far it is ahead of the machine's clock."""
        return self._ahead_s

    def advance(self, seconds: float) -> None:
        """Move it forward."""
        if not 0 < seconds <= ADVANCE_MAX_S:
            raise InvalidArgument(
                f"the clock cannot be advanced by {seconds:g} s: give more than 0 and at most"
                f" {ADVANCE_MAX_S:g}"
            )
        self._ahead_s += seconds
