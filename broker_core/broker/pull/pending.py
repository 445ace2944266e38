"""Held pulls: woken by a message for their queue, or by their deadline.

Owns the held pulls and their deadlines. Holding and ending a pull takes constant time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.access.asking_account import account_name
from broker_core.broker.held_deadlines import HeldDeadlines
from broker_core.broker.held_wakes import TURN_MAX, HeldWakes
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

_HELD: Final = "broker.held_pulls"

QueueKey = tuple[bytes, int]
# Tries again; returns whether it has answered. True as the argument forces an answer.
Retry = Callable[[bool], bool]


class _HeldPull:
    __slots__ = ("connection", "is_tried", "key", "retry")

    def __init__(self, connection: Connection, key: QueueKey, retry: Retry) -> None:
        self.connection = connection
        self.key = key
        # None once it is answered or its connection is gone.
        self.retry: Retry | None = retry
        self.is_tried = False

    @property
    def is_live(self) -> bool:
        """False once it is answered or its connection is closed."""
        return self.retry is not None


class PendingPulls:
    """Every held pull of a broker, by queue and by deadline."""

    def __init__(self, clock: Clock) -> None:
        # Dictionaries are used as ordered sets.
        self._by_queue: dict[QueueKey, dict[_HeldPull, None]] = {}
        self._deadlines: HeldDeadlines[_HeldPull] = HeldDeadlines(clock, self._expired)
        # Taken out of `_by_queue`.
        self._wakes: HeldWakes[_HeldPull] = HeldWakes(self._wake)
        self._live = 0
        self._is_released = False

    def __len__(self) -> int:
        return self._live

    def hold(
        self,
        connection: Connection,
        opaque: int,
        key: QueueKey,
        timeout_ms: float,
        retry: Retry,
    ) -> bool:
        """Hold the request `opaque` until `retry` has answered; at the deadline it must.

        False when the peer holds too many.
        """
        if self._is_released:
            retry(True)
            return True
        if not connection.load.suspend(opaque, account_name(connection)):
            return False
        held = _HeldPull(connection, key, retry)
        self._by_queue.setdefault(key, {})[held] = None
        of_connection = connection.attributes.get(_HELD)
        if of_connection is None:
            of_connection = connection.attributes[_HELD] = set()
            connection.on_close(self._connection_closed)
        of_connection.add(held)
        self._live += 1
        self._deadlines.add(held, timeout_ms)
        return True

    def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
        """A queue has new messages."""
        key = (topic, queue_id)
        held_here = self._by_queue.get(key)
        if held_here is None:
            return
        # Pulls that are held during the retries go into a new set.
        del self._by_queue[key]
        if len(held_here) > TURN_MAX:
            self._wakes.add(held_here)
            return
        for held in held_here:
            self._try(held, final=False)
        still = {held: None for held in held_here if held.retry is not None}
        if still:
            self._by_queue[key] = still | self._by_queue.get(key, {})
        self._deadlines.drop_ended(self._live)

    def release_all(self) -> None:
        """Answer every held pull now and every later one at once: the broker stops."""
        self._is_released = True
        for held in self._wakes.taken():
            self._try(held, final=True)
        for held in [held for here in self._by_queue.values() for held in here]:
            self._try(held, final=True)
        self._by_queue.clear()
        self._deadlines.clear()

    def _wake(self, held: _HeldPull) -> None:
        self._try(held, final=False)
        if held.is_live:
            self._by_queue.setdefault(held.key, {})[held] = None
        self._deadlines.drop_ended(self._live)

    def _try(self, held: _HeldPull, *, final: bool) -> None:
        retry = held.retry
        if retry is None or held.is_tried:
            # A read may dispatch messages, which wake the pull that reads.
            return
        held.is_tried = True
        try:
            is_answered = retry(final)
        finally:
            held.is_tried = False
        if is_answered and held.is_live:
            self._end(held)

    def _end(self, held: _HeldPull) -> None:
        held.retry = None
        self._live -= 1
        held.connection.attributes[_HELD].discard(held)

    def _connection_closed(self, connection: Connection) -> None:
        for held in list(connection.attributes[_HELD]):
            self._end(held)
            self._forget(held)
        self._deadlines.drop_ended(self._live)

    def _forget(self, held: _HeldPull) -> None:
        held_here = self._by_queue.get(held.key)
        if held_here is None:
            return
        held_here.pop(held, None)
        if not held_here:
            del self._by_queue[held.key]

    def _expired(self, held: _HeldPull) -> None:
        self._try(held, final=True)
        self._forget(held)
