"""Progress of a group: recorded in memory at once, saved at a broker or in a file periodically.

    note     advance only                persist   save what changed since the last time
    put      reset, in any direction     forget    another member continues from here

A crash repeats the messages consumed since the last `persist`; none is skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from broker_core.client.connection.instance import ClientInstance, checked
from broker_core.client.pull.queue_offsets import QueueOffsets
from broker_core.codec.json.fields import whole_number
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, RmqError, UnexpectedAnswer
from broker_core.protocol_codes import RequestCode, ResponseCode

_log = logging.getLogger(__name__)

READ_TIMEOUT_MS: Final = 5_000
_AT_ONCE: Final = 32


class OffsetKeeper(Protocol):
    """Progress of one group at one client."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The saved offset; None if there is none. Raises when it cannot be read."""

    def note(self, queue: MessageQueue, offset: int) -> None:
        """All messages before `offset` are acknowledged; a smaller offset is ignored."""

    def put(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset, in any direction."""

    def noted(self, queue: MessageQueue) -> int | None:
        """The recorded offset; None if none was recorded since the queue was assigned."""

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Save changed offsets, of `queues` or of all. Returns whether all were saved."""

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset: another member consumes the queue now."""


class NotedOffsets:
    """Offsets in memory, and which of them are not saved yet."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._changed: set[MessageQueue] = set()

    def note(self, queue: MessageQueue, offset: int) -> None:
        """All messages before `offset` are acknowledged; a smaller offset is ignored."""
        known = self._offsets.get(queue)
        if known is None or offset > known:
            self.put(queue, offset)

    def put(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset, in any direction."""
        self._offsets[queue] = offset
        self._changed.add(queue)

    def noted(self, queue: MessageQueue) -> int | None:
        """The recorded offset; None if none was recorded since the queue was assigned."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset: another member consumes the queue now."""
        self._offsets.pop(queue, None)
        self._changed.discard(queue)

    def all(self) -> dict[MessageQueue, int]:
        """A copy of everything."""
        return dict(self._offsets)

    def take_changed(self, queues: Iterable[MessageQueue] | None) -> dict[MessageQueue, int]:
        """Changed offsets to save; `put_back` those that could not be saved."""
        wanted = self._changed if queues is None else self._changed.intersection(queues)
        taken = {queue: self._offsets[queue] for queue in wanted}
        self._changed.difference_update(taken)
        return taken

    def put_back(self, queues: Iterable[MessageQueue]) -> None:
        """Mark offsets as not saved."""
        self._changed.update(queue for queue in queues if queue in self._offsets)


class BrokerOffsets(NotedOffsets):
    """Saved at the broker of each queue: for clustering consumers."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        super().__init__()
        self._client = client
        self._group = group
        self._queue_offsets = QueueOffsets(client)

    async def read(self, queue: MessageQueue) -> int | None:
        """The group's committed offset at the broker. Raises `RmqError` when it cannot be read.

        For a queue that still has its first messages, brokers answer 0 instead of "none", so a new
        group also gets the messages that were sent to a new topic before the group existed.
        """
        ext = {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "bname": queue.broker_name,
        }
        command = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        answer = await self._client.request_broker(
            queue.broker_name, command, READ_TIMEOUT_MS, or_any=True
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        text = checked(answer).ext.get("offset", "")
        try:
            offset = whole_number(text, "offset", -1)
        except InvalidArgument as error:
            raise UnexpectedAnswer(f"progress of {self._group}: {error}") from None
        return offset if offset >= 0 else None

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Commit at the brokers and wait for the answers; failures are logged and retried later."""
        taken = list(self.take_changed(queues).items())
        # Restored in `finally`: the caller may be cancelled when the consumer stops.
        left = dict(taken)
        try:
            for first in range(0, len(taken), _AT_ONCE):
                part = taken[first : first + _AT_ONCE]
                done = await asyncio.gather(*(self._commit(*pair) for pair in part))
                for (queue, _), is_done in zip(part, done, strict=True):
                    if is_done:
                        del left[queue]
        finally:
            self.put_back(left)
        return not left

    async def _commit(self, queue: MessageQueue, offset: int) -> bool:
        try:
            await self._queue_offsets.commit_offset(self._group, queue, offset)
        except RmqError as error:
            _log.warning("offset %d of %s was not committed: %s", offset, queue, error)
            return False
        return True


class MemoryOffsets(NotedOffsets):
    """Not saved: for a broadcasting consumer without a directory."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset of this run."""
        return self.noted(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Nothing to save."""
        self.take_changed(queues)
        return True
