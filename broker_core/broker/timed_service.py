"""What services of the event loop that work by the clock have in common: those that deliver delayed
and timer messages, and the one that ends transactions.

Each is given its timers and its worker by tests, and takes the loop and a thread of its own
otherwise. What fails is tried again later and later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import ThreadWorker, Worker

# What is appended before others get their turn.
SLICE_COUNT_MAX: Final = 64
SLICE_SIZE_MAX: Final = 1 << 20
TICK_MS: Final = 1_000
# Timers run by the other clock: look again when the wall clock moved this much against it.
CLOCK_STEP_MS: Final = 50
BACK_OFF_MIN_MS: Final = 100
BACK_OFF_MAX_MS: Final = 10_000


class Timer(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """Or not."""


class Timers(Protocol):
    """Calls later; an event loop is one."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call in `delay` seconds."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        """Call once others had their turn."""


class ServiceRun:
    """The timers and the worker of one service, from its start to its end."""

    def __init__(self, thread_name: str, timers: Timers | None, worker: Worker | None) -> None:
        self._thread_name = thread_name
        self._given_timers = timers
        self._given_worker = worker
        self._own_worker: Worker | None = None

    def begin(self) -> tuple[Timers, Worker]:
        """Those to work with; needs a running event loop unless both were given."""
        timers = self._given_timers or asyncio.get_running_loop()
        if self._given_worker is not None:
            return timers, self._given_worker
        # Saving waits for the disk, which the event loop must not.
        post = asyncio.get_running_loop().call_soon_threadsafe
        self._own_worker = ThreadWorker(self._thread_name, post)
        return timers, self._own_worker

    @contextmanager
    def ended_by_failure(self) -> Iterator[None]:
        """For the part of a start that may fail: leaves no thread behind then."""
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
    """How long to wait after so many failures in a row."""
    return min(BACK_OFF_MIN_MS << min(failures - 1, 10), BACK_OFF_MAX_MS)


def elapsed_ms(clock: Clock) -> int:
    """Time that nobody sets."""
    return int(clock.monotonic() * 1000)


def drift_ms(clock: Clock) -> int:
    """How far the wall clock is from it; changes when the wall clock is set."""
    return clock.wall_ms() - elapsed_ms(clock)
