"""A periodic check on the event loop; runs never overlap."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod


class RepeatedCheck(ABC):
    """Calls `check` every `interval_s` between `begin` and `stop`."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._check: asyncio.Task[bool] | None = None

    @abstractmethod
    async def check(self) -> bool:
        """Check once; returns whether something changed."""

    def begin(self) -> None:
        """Start; the first check comes after one interval. Calling it twice is harmless."""
        if self._timer is None:
            self._schedule()

    async def stop(self) -> None:
        """Start no more checks and wait for the one under way."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._check is not None:
            await asyncio.wait((self._check,))

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._on_timer)

    def _on_timer(self) -> None:
        self._schedule()
        if self._check is None or self._check.done():
            self._check = asyncio.ensure_future(self.check())
