"""Wakes many held requests over several turns of the event loop: others are served in between.

A message for a queue may wake a hundred thousand of them, whether it is for them or not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

# Woken in one turn, which takes a few milliseconds. As many are woken at once, by the arrival.
TURN_MAX: Final = 64

Item = TypeVar("Item")


class HeldWakes(Generic[Item]):
    """Event loop only. Calls `wake` for each item, in order."""

    def __init__(self, wake: Callable[[Item], object]) -> None:
        self._wake = wake
        self._items: deque[Item] = deque()
        self._is_due = False

    def __len__(self) -> int:
        return len(self._items)

    def add(self, items: Iterable[Item]) -> None:
        """Wake these in later turns."""
        self._items.extend(items)
        self._go_on()

    def taken(self) -> Iterator[Item]:
        """Take the items that were not woken yet."""
        while self._items:
            yield self._items.popleft()

    def _go_on(self) -> None:
        if self._items and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        try:
            for _ in range(min(TURN_MAX, len(self._items))):
                self._wake(self._items.popleft())
        finally:
            self._go_on()
