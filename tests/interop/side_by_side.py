"""Pieces of work in threads of their own, waited for by name and never without a limit.

Scenarios mostly wait for timers of clients, so many of them run side by side; those that need the
machine for themselves run when all others are done. A piece that hangs fails the tests that wait
for it,
with its name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from tests.interop.peer_releases import COMPLETE

# Less than a test is given in all: what hangs says what it is.
LIMIT_S = 6_000.0 if COMPLETE else 400.0


class SideBySide:
    """Named pieces of work on a few threads; `close` it at the end."""

    def __init__(self, threads: int, name: str, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._runs: dict[str, Future[None]] = {}

    def start(self, name: str, work: Callable[..., None], *arguments: Any) -> None:
        self._runs[name] = self._pool.submit(work, *arguments)

    def failure(self, name: str) -> BaseException | None:
        """What this piece raised, or None if it did not."""
        self._wait_for([name], time.monotonic() + self._limit_s)
        return self._runs[name].exception()

    def failure_alone(
        self, name: str, work: Callable[..., None], *arguments: Any
    ) -> BaseException | None:
        """The same for work that starts now, after all that was started before."""
        deadline = time.monotonic() + self._limit_s
        self._wait_for(list(self._runs), deadline)
        self.start(name, work, *arguments)
        self._wait_for([name], deadline)
        return self._runs[name].exception()

    def cancel(self) -> None:
        """What has not begun never begins."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Wait for what has begun; end what it waits for before."""
        self.cancel()
        # What was cancelled by the pool never counts as done for `wait`.
        begun = [run for run in self._runs.values() if not run.cancelled()]
        _, hanging = wait(begun, self._limit_s)
        assert not hanging, f"still running after {self._limit_s} s: {self._named(hanging)}"

    def _wait_for(self, names: list[str], deadline: float) -> None:
        _, late = wait([self._runs[name] for name in names], max(deadline - time.monotonic(), 0.0))
        assert not late, f"still running after {self._limit_s} s: {self._named(late)}"

    def _named(self, runs: set[Future[None]]) -> str:
        return "; ".join(name for name, run in self._runs.items() if run in runs)
