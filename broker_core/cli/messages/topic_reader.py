"""Reads all queues of a topic without a group; no progress is saved."""

from __future__ import annotations

import asyncio

from broker_core.cli.exit_codes import CommandFailed
from broker_core.cli.messages.offset_option import StartPosition, first_offset
from broker_core.cli.messages.outlet import MessageOutlet
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.pull.consumer import PullConsumer
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.topic_name import TOOLS_GROUP

# Every broker has this group, for tools.


class TopicReader:
    """Passes the messages of a topic to an outlet."""

    def __init__(
        self, client: ClientInstance, topic: str, expression: str, outlet: MessageOutlet
    ) -> None:
        self._consumer = PullConsumer(client, TOOLS_GROUP)
        self._topic = topic
        self._expression = expression
        self._outlet = outlet

    async def read(
        self, position: StartPosition, until_end: bool, queue_id: int | None = None
    ) -> None:
        """Read until the outlet is full, the current end of each queue is reached, or for ever."""
        queues = await self._queues(queue_id)
        readers = {
            asyncio.ensure_future(self._read_queue(queue, position, until_end)) for queue in queues
        }
        full = asyncio.ensure_future(self._outlet.full())
        running: set[asyncio.Future[None]] = {*readers, full}
        try:
            while running - {full} and not full.done():
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for reader in done:
                    reader.result()
        finally:
            for task in (*readers, full):
                task.cancel()
            await asyncio.wait((*readers, full))
        self._outlet.flush()

    async def _queues(self, queue_id: int | None) -> list[MessageQueue]:
        queues = await self._consumer.queues(self._topic)
        found = [queue for queue in queues if queue_id in (None, queue.queue_id)]
        if not found:
            which = "" if queue_id is None else f" number {queue_id}"
            raise CommandFailed(f"topic {self._topic} has no queue{which} that can be read")
        return found

    async def _read_queue(
        self, queue: MessageQueue, position: StartPosition, until_end: bool
    ) -> None:
        start = await first_offset(position, self._consumer, queue)
        until = await self._consumer.max_offset(queue) if until_end else None
        if until is not None and start >= until:
            return
        # Messages may expire before they are printed.
        stream = self._consumer.stream(
            queue, start, until, expression=self._expression, allow_gaps=True
        )
        async with stream:
            async for message in stream.messages():
                if not self._outlet.print(message):
                    return
