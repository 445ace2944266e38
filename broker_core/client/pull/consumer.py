"""Pull consumer: the caller chooses queue and offset, and keeps its own progress.

Sends no heartbeats and joins no group: each pull carries its subscription.
"""

from __future__ import annotations

from typing import Any, Final

from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.connection.lifecycle import Lifecycle
from broker_core.client.connection.topic_queues import Queues
from broker_core.client.pull.queue_offsets import QueueOffsets
from broker_core.client.pull.queue_reader import QueueReader, ReadDoors
from broker_core.client.pull.received_message import ReceivedMessage, decode_messages
from broker_core.client.pull.request import PullRequest
from broker_core.client.pull.result import PullResult
from broker_core.client.pull.stream import READER_GROUP, PullStream
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.subscription_data import (
    TAG,
    SubscriptionData,
    parse_tag_expression,
)
from broker_core.codec.wire.topic_name import group_name_problem
from broker_core.errors import InvalidArgument

_READERS_MAX: Final = 100_000


class PullConsumer(Lifecycle):
    """Reads queues for `group`; any number of pulls may be under way at the same time.

    A `ClientInstance` is shared and may be started already. From a `ClientConfig` the consumer
    creates its own: use it with `async with`, or `start` and `stop` it.
    """

    def __init__(self, client: ClientInstance | ClientConfig, group: str = READER_GROUP) -> None:
        problem = group_name_problem(group)
        if problem is not None:
            raise InvalidArgument(f"consumer {problem}: {group!r:.140}")
        self._owns_client = isinstance(client, ClientConfig)
        self.client = ClientInstance(client) if isinstance(client, ClientConfig) else client
        self.group = group
        self._offsets = QueueOffsets(self.client)
        self._readers: dict[tuple[MessageQueue, str, str], QueueReader] = {}

    async def start(self) -> None:
        """Start the client; connections are made on demand."""
        await self.client.start()

    async def stop(self) -> None:
        """Stop the client unless it is shared."""
        if self._owns_client:
            await self.client.stop()

    async def queues(self, topic: str) -> Queues:
        """The queues of a topic that can be read. Raises `TopicNotExist`."""
        return await self.client.routes.subscribe_queues(topic)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_count: int = 32,
        max_bytes: int = 0,
        suspend_ms: int = 0,
        expression: str = "*",
        expression_type: str = TAG,
    ) -> PullResult:
        """One pull: the decoded messages that match the expression, and the next offset.

        `suspend_ms` lets the broker hold the request until a message arrives. Raises `RemoteError`
        when the broker refuses, `ConnectionLost` or `RequestTimeout` when no member answers.
        """
        if offset < 0 or max_count < 1 or suspend_ms < 0:
            text = f"offset {offset}, max_count {max_count} and suspend_ms {suspend_ms}"
            raise InvalidArgument(f"{text}: give at least 0, 1 and 0")
        reader = self._reader(queue, expression, expression_type)
        result = await reader.pull(PullRequest(offset, max_count, max_bytes, suspend_ms))
        messages = matching(
            decode_messages(result.records, queue, self.client.config.decompressed_size_max),
            reader.subscription,
        )
        return result._replace(messages=tuple(messages))

    def stream(
        self,
        queue: MessageQueue,
        start: int,
        until: int | None = None,
        *,
        expression: str = "*",
        expression_type: str = TAG,
        **options: Any,
    ) -> PullStream:
        """All messages from `start` up to `until`, or without end; `options` as of `PullStream`."""
        subscription = _subscription(queue.topic, expression, expression_type)
        return PullStream(
            self.client, queue, start, until, group=self.group, subscription=subscription, **options
        )

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self._offsets.max_offset(queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message."""
        return await self._offsets.min_offset(queue)

    async def offset_by_time(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message stored at `time_ms` (epoch) or later."""
        return await self._offsets.offset_by_time(queue, time_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset; None if there is none."""
        return await self._offsets.committed_offset(self.group, queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the group's offset."""
        await self._offsets.commit_offset(self.group, queue, offset)

    def _reader(self, queue: MessageQueue, expression: str, expression_type: str) -> QueueReader:
        reader = self._readers.get((queue, expression, expression_type))
        if reader is None:
            subscription = _subscription(queue.topic, expression, expression_type)
            client = self.client
            doors = ReadDoors(client.remoting, client.routes, client.capabilities)
            reader = QueueReader(doors, queue, self.group, subscription)
            if len(self._readers) >= _READERS_MAX:
                self._readers.clear()
            self._readers[queue, expression, expression_type] = reader
        return reader


def _subscription(topic: str, expression: str, expression_type: str) -> SubscriptionData:
    if expression_type == TAG:
        return parse_tag_expression(topic, expression)
    return SubscriptionData(topic, expression, expression_type=expression_type)


def matching(
    messages: list[ReceivedMessage], subscription: SubscriptionData
) -> list[ReceivedMessage]:
    """The messages with one of the tags; the broker compares hashes only."""
    if not subscription.tags:
        return messages
    tags = frozenset(subscription.tags)
    return [message for message in messages if message.tags in tags]
