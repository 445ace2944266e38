"""A map over items on two threads: the owner, which waits, and a worker when it is free.

    owner   ─ 0 ── 1 ──── 3 ── 5 ─┐
    worker  (other jobs) ─ 2 ── 4 ┴─► results, in order

The next free thread takes the next item. The owner never waits for a worker that has not started;
it then does everything itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
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
    taken: Callable[[list[Result]], object],
) -> None:
    """`job(OWNER or WORKER, item)` of each item, on two threads.

    `taken` gets the results in the order of the items, on the owner's thread, as they become
    available. An error of either thread is raised here after both have stopped.
    """
    work = _SharedWork(items, job)
    worker.submit(work.help, _ignore)
    try:
        while work.do_next(OWNER):
            work.hand_over(taken)
    finally:
        work.end()
    if work.error is not None:
        raise work.error
    work.hand_over(taken)


class _SharedWork(Generic[Item, Result]):
    def __init__(self, items: Sequence[Item], job: Callable[[int, Item], Result]) -> None:
        self._items = items
        self._job = job
        self._todo = deque(range(len(items)))
        self._done: dict[int, Result] = {}
        self._handed_over = 0
        # Held by the worker while it works.
        self._helping = threading.Lock()
        self._has_ended = False
        self.error: BaseException | None = None

    def help(self) -> None:
        """On the worker's thread; possibly after all items are done."""
        with self._helping:
            while not self._has_ended and self.do_next(WORKER):
                pass

    def do_next(self, hand: int) -> bool:
        """On either thread: one more item; False when none is left."""
        try:
            number = self._todo.popleft()
        except IndexError:
            return False
        try:
            self._done[number] = self._job(hand, self._items[number])
        except BaseException as error:
            # The owner raises it; the worker ignores it.
            self.error = self.error or error
            self._todo.clear()
            raise
        return True

    def hand_over(self, taken: Callable[[list[Result]], object]) -> None:
        """On the owner's thread: pass on the results that have become complete, in order."""
        results = []
        while self._handed_over in self._done:
            results.append(self._done.pop(self._handed_over))
            self._handed_over += 1
        if results:
            taken(results)

    def end(self) -> None:
        """Start no more items and wait for those under way."""
        self._todo.clear()
        with self._helping:
            self._has_ended = True


def _ignore(_result: object, _error: BaseException | None) -> None:
    """The owner gets the error from `_SharedWork`."""
