"""One queue that this client consumes now: its backlog, its tasks, and whether it still may."""

from __future__ import annotations

import asyncio

from broker_core.client.consume_types import PushSettings
from broker_core.client.local_backlog import LocalBacklog
from broker_core.client.queue_reader import QueueReader
from broker_core.codec.message_queue import MessageQueue
from broker_core.codec.subscription_data import SubscriptionData


class AssignedQueue:
    """Leaves or is dropped once and for good; a queue that comes back is another object."""

    def __init__(self, reader: QueueReader, start_offset: int) -> None:
        self.queue: MessageQueue = reader.queue
        self.subscription: SubscriptionData = reader.subscription
        self.reader = reader
        self.backlog = LocalBacklog(start_offset)
        self.is_leaving = False
        """No more calls of the listener; those under way still count."""
        self.is_dropped = False
        """Nothing counts any more."""
        self.locked_at: float | None = None
        """When the broker granted the queue last, by the monotonic clock."""
        # Set when something may go on: room in the backlog, messages in it, a new lock, the end.
        self.changed = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self.lock_tries = 0

    def leave(self) -> None:
        """Begin nothing new."""
        self.is_leaving = True
        self.changed.set()

    def drop(self) -> None:
        """Nothing that comes from now on counts."""
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
        """Whether the queue is surely this client's."""
        if not settings.needs_locks:
            return True
        return (
            self.locked_at is not None and (now - self.locked_at) * 1000 < settings.lock_validity_ms
        )

    async def wait_for_change(self, timeout_s: float | None = None) -> None:
        """Until something may go on, or so many seconds."""
        self.changed.clear()
        if self.is_leaving:
            return
        waiter = asyncio.ensure_future(self.changed.wait())
        try:
            await asyncio.wait((waiter,), timeout=timeout_s)
        finally:
            waiter.cancel()

    async def cancel_tasks(self) -> None:
        """End what works on the queue; not to be called by one of its tasks."""
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
