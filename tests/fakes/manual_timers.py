"""Timers that fire when a test moves its clock."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.fakes.manual_clock import ManualClock


class ManualTimer:
    """One call to come."""

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args
        self.is_cancelled = False

    def cancel(self) -> None:
        """Never call."""
        self.is_cancelled = True

    def fire(self) -> None:
        """Call, unless cancelled."""
        if not self.is_cancelled:
            self._callback(*self._args)


class ManualTimers:
    """`call_later` and `call_soon` of an event loop, by the monotonic time of a `ManualClock`."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._heap: list[tuple[float, int, ManualTimer]] = []
        self._soon: deque[ManualTimer] = deque()
        self._number = itertools.count()
        self.turns = 0
        """How many turns of the loop were needed so far."""

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object
    ) -> ManualTimer:
        """Call once the clock has moved by `delay` seconds."""
        timer = ManualTimer(callback, args)
        due = self.clock.monotonic() + max(delay, 0)
        heapq.heappush(self._heap, (due, next(self._number), timer))
        return timer

    def call_soon(self, callback: Callable[..., object], *args: object) -> ManualTimer:
        """Call in the next turn."""
        timer = ManualTimer(callback, args)
        self._soon.append(timer)
        return timer

    @property
    def next_due_ms(self) -> float | None:
        """Milliseconds until the next timer, None without any."""
        due = [when for when, _, timer in self._heap if not timer.is_cancelled]
        return (min(due) - self.clock.monotonic()) * 1000 if due else None

    def run_turn(self) -> bool:
        """One turn of the loop: due timers and what was called soon before it; False if nothing."""
        ready = deque(self._soon)
        self._soon.clear()
        while self._heap and self._heap[0][0] <= self.clock.monotonic() + 1e-9:
            ready.append(heapq.heappop(self._heap)[2])
        for timer in ready:
            timer.fire()
        self.turns += bool(ready)
        return bool(ready)

    def run(self) -> None:
        """Turns until nothing is left to do at this time."""
        while self.run_turn():
            pass

    def advance(self, ms: float) -> None:
        """Let time pass, stopping at each timer on the way."""
        until = self.clock.monotonic() + ms / 1000
        self.run()
        while self._heap and self._heap[0][0] <= until:
            self.clock.advance(max(0.0, (self._heap[0][0] - self.clock.monotonic()) * 1000))
            self.run()
        self.clock.advance(max(0.0, (until - self.clock.monotonic()) * 1000))
        self.run()
