"""A queue assigned to this client: its backlog, its tasks and its lock."""

from __future__ import annotations

import asyncio

from broker_core.client.pull.queue_reader import QueueReader
from broker_core.client.push.backlog import LocalBacklog
from broker_core.client.push.types import PushSettings
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData


class AssignedQueue:
    """Leaving and dropping are final; a queue that is assigned again gets a new object."""

    def __init__(self, reader: QueueReader, start_offset: int) -> None:
        self.queue: MessageQueue = reader.queue
        self.subscription: SubscriptionData = reader.subscription
        self.reader = reader
        self.backlog = LocalBacklog(start_offset)
        self.is_leaving = False
        """No new listener calls; the results of those under way still count."""
        self.is_dropped = False
        """Results of listener calls are ignored."""
        self.locked_at: float | None = None
        """Monotonic time of the last granted lock."""
        # Set on any change: room or messages in the backlog, a new lock, the end.
        self.changed = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        self.last_pull_ms = 0
        self.last_consume_ms = 0

    def leave(self) -> None:
        """Start no new listener calls."""
        self.is_leaving = True
        self.changed.set()

    def drop(self) -> None:
        """Ignore results from now on."""
        self.is_dropped = True
        self.leave()

    def has_room(self, settings: PushSettings) -> bool:
        """Whether more may be fetched."""
        backlog = self.backlog
        return (
            backlog.count < settings.backlog_count_max
            and backlog.size < settings.backlog_size_max
            # An orderly backlog has no holes.
            and (settings.orderly or backlog.span <= settings.backlog_span_max)
        )

    def is_locked(self, now: float, settings: PushSettings) -> bool:
        """Whether the lock is valid; always true for concurrent consumers."""
        if not settings.needs_locks:
            return True
        return (
            self.locked_at is not None and (now - self.locked_at) * 1000 < settings.lock_validity_ms
        )

    async def wait_for_change(self, timeout_s: float | None = None) -> None:
        """Wait for the next change, at most `timeout_s`."""
        self.changed.clear()
        if self.is_leaving:
            return
        waiter = asyncio.ensure_future(self.changed.wait())
        try:
            await asyncio.wait((waiter,), timeout=timeout_s)
        finally:
            waiter.cancel()

    async def cancel_tasks(self) -> None:
        """Cancel the tasks of the queue; must not be called by one of them."""
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
