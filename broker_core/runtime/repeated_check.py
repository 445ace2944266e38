"""Something that is looked at again and again on the event loop, never twice at a time."""

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
        """Look now; whether something was new."""

    def begin(self) -> None:
        """Look for the first time after one interval; nothing if that was begun before."""
        if self._timer is None:
            self._schedule()

    async def stop(self) -> None:
        """Look no longer."""
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
