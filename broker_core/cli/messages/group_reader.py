"""Reads a topic as a member of a consumer group.

Messages are printed in order. One that could not be printed is neither skipped nor sent back for a
retry: the next member reads it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from broker_core.cli.messages.offset_option import PositionKind, StartPosition, first_offset
from broker_core.cli.messages.outlet import MessageOutlet
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.consumer import PushConsumer
from broker_core.client.push.types import ConsumeContext, ConsumeStatus, PushSettings
from broker_core.codec.wire.bodies.heartbeat_data import (
    FROM_FIRST_OFFSET,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
)
from broker_core.codec.wire.bodies.message_queue import MessageQueue

_FROM_WHERE: Final = {
    PositionKind.BEGINNING: FROM_FIRST_OFFSET,
    PositionKind.END: FROM_LAST_OFFSET,
    PositionKind.TIME: FROM_TIMESTAMP,
}
# How often the progress of the other members is asked for.
_LOOK_INTERVAL_S: Final = 0.25
_BATCH_SIZE: Final = 32


class GroupReader:
    """Passes the messages of this member's queues to an outlet and commits the group's progress."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        topic: str,
        expression: str,
        outlet: MessageOutlet,
    ) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._expression = expression
        self._outlet = outlet
        self._progress = PullConsumer(client, group)
        self._printed: dict[MessageQueue, int] = {}

    async def read(self, position: StartPosition, until_end: bool) -> None:
        """Read until the outlet is full, the group has reached the current end, or for ever."""
        # Before joining: a topic that does not exist is an error here.
        queues = await self._progress.queues(self._topic)
        left = await self._to_read(queues, position) if until_end else {}
        settings = PushSettings(
            orderly=True,
            from_where=_FROM_WHERE[position.kind],
            from_timestamp_ms=position.number,
            batch_size=_BATCH_SIZE,
        )
        consumer = PushConsumer(self._client, self._group, self._print, settings)
        consumer.subscribe(self._topic, self._expression)
        full = asyncio.ensure_future(self._outlet.full())
        try:
            async with consumer:
                if until_end:
                    await self._until_read(left, full)
                else:
                    await full
        finally:
            full.cancel()
        self._outlet.flush()

    async def _print(
        self, messages: Sequence[ReceivedMessage], context: ConsumeContext
    ) -> ConsumeStatus:
        for number, message in enumerate(messages):
            if not self._outlet.print(message):
                context.succeeded = number
                return ConsumeStatus.LATER
            self._printed[message.queue] = message.queue_offset + 1
        return ConsumeStatus.SUCCESS

    async def _to_read(
        self, queues: Sequence[MessageQueue], position: StartPosition
    ) -> dict[MessageQueue, int]:
        """The ends of the queues in which the group has something left."""
        left = {}
        for queue in queues:
            end = await self._progress.max_offset(queue)
            start = await self._progress.committed(queue)
            if start is None:
                start = await first_offset(position, self._progress, queue)
            if start < end:
                left[queue] = end
        return left

    async def _until_read(self, left: dict[MessageQueue, int], full: asyncio.Future[None]) -> None:
        """Wait until the group, by any of its members, has reached the ends in `left`."""
        while left and not full.done():
            for queue, end in list(left.items()):
                if await self._reached(queue) >= end:
                    del left[queue]
            if left:
                await asyncio.wait((full,), timeout=_LOOK_INTERVAL_S)

    async def _reached(self, queue: MessageQueue) -> int:
        # Messages with other tags are skipped, but count as consumed.
        return max(self._printed.get(queue, 0), await self._progress.committed(queue) or 0)
