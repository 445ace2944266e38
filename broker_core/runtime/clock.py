"""Time as a constructor argument: the `Clock` protocol and the clock of the machine.

Durations and deadlines use `monotonic`, which never jumps. Only what is stored or shown to people
uses `wall_ms`, which may jump either way. Nothing else of ours reads the time.
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

    # The function itself: every put asks twice.
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        """Epoch milliseconds; may jump in both directions."""
        return time.time_ns() // 1_000_000
