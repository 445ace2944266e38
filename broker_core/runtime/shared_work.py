"""Work that its owner waits for and a worker lends a hand with, whenever it is free.

    owner   ─ 0 ── 1 ──── 3 ── 5 ─┐
    worker  (other jobs) ─ 2 ── 4 ┴─► results, in order

Whoever is free takes the next item. The owner never waits for a worker that has not begun: it does
everything itself then.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from broker_core.runtime.worker import Worker

OWNER: Final = 0
WORKER: Final = 1

Item = TypeVar("Item")
Result = TypeVar("Result")


def share_work(
    items: Sequence[Item],
    job: Callable[[int, Item], Result],
    worker: Worker,
    progressed: Callable[[int], object],
) -> list[Result]:
    """`job(OWNER or WORKER, item)` of each item, on two threads; the results in order.

    `progressed(count)` is called on the owner's thread when all of the first `count` are done. An
    error of either thread is raised here, after both have stopped.
    """
    work = _SharedWork(items, job)
    worker.submit(work.help, _ignore)
    try:
        for count in work.carry_out():
            progressed(count)
    finally:
        work.end()
    return work.results()


class _SharedWork(Generic[Item, Result]):
    def __init__(self, items: Sequence[Item], job: Callable[[int, Item], Result]) -> None:
        self._items = items
        self._job = job
        self._todo = deque(range(len(items)))
        self._done: dict[int, Result] = {}
        self._error: BaseException | None = None
        # Held by the worker as long as it is at it.
        self._helping = threading.Lock()
        self._has_ended = False

    def help(self) -> None:
        """On the worker's thread, now or when all is over."""
        with self._helping:
            while not self._has_ended and self._take(WORKER):
                pass

    def carry_out(self) -> Iterator[int]:
        """On the owner's thread: yields how many of the first items are done, when more are."""
        count = 0
        while self._take(OWNER):
            before = count
            while count in self._done:
                count += 1
            if count > before:
                yield count

    def end(self) -> None:
        """Nothing more is begun, and what was begun is over."""
        self._todo.clear()
        with self._helping:
            self._has_ended = True

    def results(self) -> list[Result]:
        """All of them; raises what a thread has raised."""
        if self._error is not None:
            raise self._error
        return [self._done[number] for number in range(len(self._items))]

    def _take(self, hand: int) -> bool:
        try:
            number = self._todo.popleft()
        except IndexError:
            return False
        try:
            self._done[number] = self._job(hand, self._items[number])
        except BaseException as error:
            # The owner hears of it here, whatever the worker makes of it.
            self._error = self._error or error
            self._todo.clear()
            raise
        return True


def _ignore(_result: object, _error: BaseException | None) -> None:
    """The owner has waited for it and knows, or nothing was left to do."""
