"""`SyncPullConsumer` and `SyncPushConsumer`: the async consumers for threads and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker_core.client.client_config import ClientConfig
from broker_core.client.client_instance import ClientInstance
from broker_core.client.consume_types import Listener
from broker_core.client.pull_consumer import PullConsumer
from broker_core.client.pull_result import PullResult
from broker_core.client.pull_stream import READER_GROUP, PullStream
from broker_core.client.push_consumer import PushConsumer
from broker_core.client.record_run import RecordRun
from broker_core.client.sync_face import SyncFace
from broker_core.client.topic_queues import Queues
from broker_core.codec.message_queue import MessageQueue


class SyncPullConsumer(SyncFace):
    """`PullConsumer` with calls that wait. Any thread may call it."""

    def __init__(self, config: ClientConfig | str, group: str = READER_GROUP) -> None:
        super().__init__(config)
        self._client = ClientInstance(self.config)
        self._consumer = PullConsumer(self._client, group)

    async def _open(self) -> None:
        await self._client.start()

    async def _close(self) -> None:
        await self._client.stop()

    def queues(self, topic: str) -> Queues:
        """The queues of a topic that can be read."""
        return self.call(self._consumer.queues(topic))

    def pull(self, queue: MessageQueue, offset: int, **options: Any) -> PullResult:
        """One answer of the broker; options as of `PullConsumer.pull`."""
        return self.call(self._consumer.pull(queue, offset, **options))

    def stream(
        self, queue: MessageQueue, start: int, until: int | None = None, **options: Any
    ) -> Iterator[RecordRun]:
        """Records from `start` up to `until`, or for ever; options as of `PullConsumer.stream`.

        A generator: close it, or let it end, to give up the requests that are under way.
        """
        stream = self._consumer.stream(queue, start, until, **options)
        try:
            while (run := self.call(_next(stream))) is not None:
                yield run
        finally:
            if self._thread is not None:
                self.call(stream.close())

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self.call(self._consumer.max_offset(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        """The oldest message that is still there."""
        return self.call(self._consumer.min_offset(queue))

    def offset_by_time(self, queue: MessageQueue, time_ms: int) -> int:
        """The first message stored at `time_ms` (epoch milliseconds) or later."""
        return self.call(self._consumer.offset_by_time(queue, time_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """Progress that the broker keeps for the group; None if there is none."""
        return self.call(self._consumer.committed(queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Have the broker keep progress for the group."""
        self.call(self._consumer.commit(queue, offset))


class SyncPushConsumer(SyncFace):
    """`PushConsumer` that runs in the background from `open` to `close`.

    The listener is called on threads of the consumer, or on the client's loop if it is a coroutine
    function. `settings` are the fields of `PushSettings`.
    """

    def __init__(
        self, config: ClientConfig | str, group: str, listener: Listener, **settings: Any
    ) -> None:
        super().__init__(config)
        self._consumer = PushConsumer(self.config, group, listener, **settings)

    def subscribe(self, topic: str, expression: str = "*", **options: Any) -> None:
        """As `PushConsumer.subscribe`; before `open`, or any time after."""
        if self._thread is None:
            self._consumer.subscribe(topic, expression, **options)
        else:
            self.call(self._subscribe(topic, expression, options))

    async def _subscribe(self, topic: str, expression: str, options: dict[str, Any]) -> None:
        self._consumer.subscribe(topic, expression, **options)

    async def _open(self) -> None:
        await self._consumer.start()

    async def _close(self) -> None:
        await self._consumer.stop()


async def _next(stream: PullStream) -> RecordRun | None:
    return await anext(stream, None)
