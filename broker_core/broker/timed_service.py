"""Shared by services that run on timers: delayed delivery, timer delivery and transactions.

Tests pass in the timers and the worker; otherwise a service uses the event loop and its own thread.
Failures are retried with exponential back-off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import ThreadWorker, Worker

# Appended in one turn of the loop.
SLICE_COUNT_MAX: Final = 64
SLICE_SIZE_MAX: Final = 1 << 20
TICK_MS: Final = 1_000
# Timers use the monotonic clock: reschedule when the wall clock was set by this much.
CLOCK_STEP_MS: Final = 50
BACK_OFF_MIN_MS: Final = 100
BACK_OFF_MAX_MS: Final = 10_000


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Timers(Protocol):
    """Schedules calls; an event loop is one."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call in `delay` seconds."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        """Call in the next turn of the loop."""


class ServiceRun:
    """The timers and the worker of one service, from its start to its end."""

    def __init__(self, thread_name: str, timers: Timers | None, worker: Worker | None) -> None:
        self._thread_name = thread_name
        self._given_timers = timers
        self._given_worker = worker
        self._own_worker: Worker | None = None

    def begin(self) -> tuple[Timers, Worker]:
        """The timers and the worker; needs a running event loop unless both were passed in."""
        timers = self._given_timers or asyncio.get_running_loop()
        if self._given_worker is not None:
            return timers, self._given_worker
        # The event loop must not wait for the disk.
        post = asyncio.get_running_loop().call_soon_threadsafe
        self._own_worker = ThreadWorker(self._thread_name, post)
        return timers, self._own_worker

    @contextmanager
    def ended_by_failure(self) -> Iterator[None]:
        """Stops the worker if the start fails in this block."""
        try:
            yield
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Stop the worker, if it is this service's own."""
        if self._own_worker is not None:
            self._own_worker.stop()
            self._own_worker = None


def back_off_ms(failures: int) -> int:
    """Delay after this many failures in a row."""
    return min(BACK_OFF_MIN_MS << min(failures - 1, 10), BACK_OFF_MAX_MS)


def elapsed_ms(clock: Clock) -> int:
    """Monotonic time."""
    return int(clock.monotonic() * 1000)


def drift_ms(clock: Clock) -> int:
    """Wall clock minus monotonic clock; changes when the wall clock is set."""
    return clock.wall_ms() - elapsed_ms(clock)
