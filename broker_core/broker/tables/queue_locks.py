"""Queue locks of orderly consumers: at most one member of a group consumes a queue.

In memory only, owned by the event loop. A lock is refreshed by locking again, and ends when it is
unlocked or not refreshed for `expiry_ms`. A lost connection does not end it: the client may still
be consuming, and relies on its lock for 30 seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import LimitReached
from broker_core.runtime.clock import Clock


class _Lock(NamedTuple):
    client_id: str
    expires_at: float


class QueueLocks:
    """Locks by group and queue. The broker name of a queue is ignored: it is this broker's."""

    def __init__(
        self, clock: Clock, expiry_ms: float = 60_000, *, locks_max: int = 1_000_000
    ) -> None:
        self._clock = clock
        self._expiry_s = expiry_ms / 1000
        self._locks_max = locks_max
        self._groups: dict[str, dict[tuple[str, int], _Lock]] = {}
        self._count = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Take or refresh locks; returns the queues that `client_id` owns now."""
        now = self._clock.monotonic()
        mine = _Lock(client_id, now + self._expiry_s)
        owned = []
        for queue in queues:
            key = (queue.topic, queue.queue_id)
            held = self._groups.get(group, {}).get(key)
            if held is None:
                self._make_room(now)
                self._count += 1
            elif held.client_id != client_id and held.expires_at > now:
                continue
            self._groups.setdefault(group, {})[key] = mine
            owned.append(queue)
        return owned

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the locks on those of `queues` that `client_id` owns."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            key = (queue.topic, queue.queue_id)
            held = locks.get(key)
            if held is not None and held.client_id == client_id:
                del locks[key]
                self._count -= 1
        if not locks:
            del self._groups[group]

    def owner(self, group: str, topic: str, queue_id: int) -> str | None:
        """Who may consume a queue now."""
        held = self._groups.get(group, {}).get((topic, queue_id))
        if held is None or held.expires_at <= self._clock.monotonic():
            return None
        return held.client_id

    def has_locks(self, group: str) -> bool:
        """Whether any queue is consumed in order by this group."""
        locks = self._groups.get(group)
        if not locks:
            return False
        now = self._clock.monotonic()
        return any(held.expires_at > now for held in locks.values())

    def expire(self) -> int:
        """Drop expired locks to free memory; returns how many."""
        return self._expire(self._clock.monotonic())

    def __len__(self) -> int:
        return self._count

    def _expire(self, now: float) -> int:
        before = self._count
        for group in list(self._groups):
            live = {k: held for k, held in self._groups[group].items() if held.expires_at > now}
            self._count -= len(self._groups[group]) - len(live)
            if live:
                self._groups[group] = live
            else:
                del self._groups[group]
        return before - self._count

    def _make_room(self, now: float) -> None:
        if self._count >= self._locks_max and not self._expire(now):
            raise LimitReached(f"this broker holds {self._count} queue locks, the maximum")
