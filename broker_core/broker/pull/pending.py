"""Held pulls: woken by a message for their queue, or by their deadline.

Owns the held pulls of each queue. Holding and ending a pull takes constant time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.broker.held_wakes import TURN_MAX, HeldWakes
from broker_core.broker.pending_requests import PendingRequest, PendingRequests
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

_HELD: Final = "broker.held_pulls"

QueueKey = tuple[bytes, int]
# Tries again; returns whether it has answered. True as the argument forces an answer.
Retry = Callable[[bool], bool]


class _HeldPull(PendingRequest[Retry]):
    __slots__ = ("is_tried", "key")

    def __init__(self, connection: Connection, key: QueueKey, retry: Retry) -> None:
        super().__init__(connection, retry)
        self.key = key
        self.is_tried = False


class PendingPulls:
    """Every held pull of a broker, by queue and by deadline."""

    def __init__(self, clock: Clock) -> None:
        # Dictionaries are used as ordered sets.
        self._by_queue: dict[QueueKey, dict[_HeldPull, None]] = {}
        self._held: PendingRequests[_HeldPull] = PendingRequests(
            _HELD, clock, expired=self._expired, closed=self._closed
        )
        # Taken out of `_by_queue`.
        self._wakes: HeldWakes[_HeldPull] = HeldWakes(self._wake)
        self._is_released = False

    def __len__(self) -> int:
        return len(self._held)

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
        if not self._held.admits(connection, opaque):
            return False
        held = _HeldPull(connection, key, retry)
        self._by_queue.setdefault(key, {})[held] = None
        self._held.add(held, timeout_ms)
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
            self._try(held)
        still = {held: None for held in held_here if held.is_live}
        if still:
            self._by_queue[key] = still | self._by_queue.get(key, {})
        self._held.drop_ended()

    def release_all(self) -> None:
        """Answer every held pull now and every later one at once: the broker stops."""
        self._is_released = True
        for held in self._wakes.taken():
            self._finish(held)
        for held in [held for here in self._by_queue.values() for held in here]:
            self._finish(held)
        self._by_queue.clear()
        self._held.deadlines.clear()

    def _wake(self, held: _HeldPull) -> None:
        self._try(held)
        if held.is_live:
            self._by_queue.setdefault(held.key, {})[held] = None
        self._held.drop_ended()

    def _try(self, held: _HeldPull) -> None:
        retry = held.retry
        if retry is None or held.is_tried:
            # A read may dispatch messages, which wake the pull that reads.
            return
        held.is_tried = True
        try:
            is_answered = retry(False)
        finally:
            held.is_tried = False
        if is_answered and held.is_live:
            self._held.end(held)

    def _finish(self, held: _HeldPull) -> None:
        retry = held.retry
        if retry is not None:
            # Before it answers: its read may dispatch messages, which wake it.
            self._held.end(held)
            retry(True)

    def _closed(self, held: _HeldPull) -> None:
        self._held.end(held)
        self._forget(held)

    def _forget(self, held: _HeldPull) -> None:
        held_here = self._by_queue.get(held.key)
        if held_here is None:
            return
        held_here.pop(held, None)
        if not held_here:
            del self._by_queue[held.key]

    def _expired(self, held: _HeldPull) -> None:
        self._finish(held)
        self._forget(held)
