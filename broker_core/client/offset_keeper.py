"""How far a group has come: noted here at once, handed to a broker or a file now and then.

    note     progress, never back        persist   hand over what changed since the last time
    put      a reset, either way         forget    another member goes on from here

A crash repeats what was done since the last `persist`; nothing is ever skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from broker_core.client.client_instance import ClientInstance, checked
from broker_core.client.queue_offsets import QueueOffsets
from broker_core.codec.json_fields import whole_number
from broker_core.codec.message_queue import MessageQueue
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, RmqError, UnexpectedAnswer
from broker_core.protocol_codes import RequestCode, ResponseCode

_log = logging.getLogger(__name__)

READ_TIMEOUT_MS: Final = 5_000
_AT_ONCE: Final = 32


class OffsetKeeper(Protocol):
    """Progress of one group at one client."""

    async def read(self, queue: MessageQueue) -> int | None:
        """What is kept; None when nothing ever was. Raises when that cannot be told."""

    def note(self, queue: MessageQueue, offset: int) -> None:
        """Everything before `offset` is done; a smaller one than before is ignored."""

    def put(self, queue: MessageQueue, offset: int) -> None:
        """Set progress, also backwards."""

    def noted(self, queue: MessageQueue) -> int | None:
        """What was noted since the queue came here."""

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Hand over what changed, of these queues or of all; whether all of it was taken."""

    def forget(self, queue: MessageQueue) -> None:
        """The queue is somebody else's now."""


class NotedOffsets:
    """Progress in memory, and which part of it is not handed over yet."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._changed: set[MessageQueue] = set()

    def note(self, queue: MessageQueue, offset: int) -> None:
        """Everything before `offset` is done; a smaller one than before is ignored."""
        known = self._offsets.get(queue)
        if known is None or offset > known:
            self.put(queue, offset)

    def put(self, queue: MessageQueue, offset: int) -> None:
        """Set progress, also backwards."""
        self._offsets[queue] = offset
        self._changed.add(queue)

    def noted(self, queue: MessageQueue) -> int | None:
        """What was noted since the queue came here."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is somebody else's now."""
        self._offsets.pop(queue, None)
        self._changed.discard(queue)

    def all(self) -> dict[MessageQueue, int]:
        """A copy of everything."""
        return dict(self._offsets)

    def take_changed(self, queues: Iterable[MessageQueue] | None) -> dict[MessageQueue, int]:
        """What is to be handed over; give back with `put_back` what could not be."""
        wanted = self._changed if queues is None else self._changed.intersection(queues)
        taken = {queue: self._offsets[queue] for queue in wanted}
        self._changed.difference_update(taken)
        return taken

    def put_back(self, queues: Iterable[MessageQueue]) -> None:
        """These were not taken."""
        self._changed.update(queue for queue in queues if queue in self._offsets)


class BrokerOffsets(NotedOffsets):
    """Kept by the broker of each queue: for clustering consumers."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        super().__init__()
        self._client = client
        self._group = group
        self._queue_offsets = QueueOffsets(client)

    async def read(self, queue: MessageQueue) -> int | None:
        """What the broker keeps for the group. Raises `RmqError` when it cannot be told now.

        Apache says 0 instead of nothing for a queue that still has its first messages, and so
        do we: a new group gets what a new topic was sent before the group came.
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
        """Tell the brokers, and wait until they have taken it; failures are logged and kept."""
        taken = list(self.take_changed(queues).items())
        # Until a broker has taken it: the caller may be cancelled, as when the consumer stops.
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
            _log.warning("offset %d of %s was not kept: %s", offset, queue, error)
            return False
        return True


class MemoryOffsets(NotedOffsets):
    """Kept nowhere: a broadcasting consumer without a directory starts anew each time."""

    async def read(self, queue: MessageQueue) -> int | None:
        """What this run knows."""
        return self.noted(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Nothing to do."""
        self.take_changed(queues)
        return True
