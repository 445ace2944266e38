"""`SyncPullConsumer` and `SyncPushConsumer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from broker_core.client.blocking.face import SyncFace, client_config, waits
from broker_core.client.connection.config import ClientConfig
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.record_run import RecordRun
from broker_core.client.pull.stream import READER_GROUP, PullStream
from broker_core.client.push.consumer import PushConsumer
from broker_core.client.push.types import Listener, PushSettings
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.subscription_data import TAG


class SyncPullConsumer(SyncFace[PullConsumer]):
    """`PullConsumer` with calls that wait. Any thread may call it."""

    def __init__(self, config: ClientConfig | str, group: str = READER_GROUP) -> None:
        config = client_config(config)
        super().__init__(config, PullConsumer(config, group))

    queues = waits(PullConsumer.queues)
    pull = waits(PullConsumer.pull)
    max_offset = waits(PullConsumer.max_offset)
    min_offset = waits(PullConsumer.min_offset)
    offset_by_time = waits(PullConsumer.offset_by_time)
    committed = waits(PullConsumer.committed)
    commit = waits(PullConsumer.commit)

    def stream(
        self, queue: MessageQueue, start: int, until: int | None = None, **options: Any
    ) -> Iterator[RecordRun]:
        """All records from `start` up to `until`, or without end.

        `options` are those of `PullConsumer.stream`. This is a generator: close it, or let it end,
        to cancel the requests under way.
        """
        stream = self.asynchronous.stream(queue, start, until, **options)
        try:
            while (run := self.call(_next(stream))) is not None:
                yield run
        finally:
            if self._thread is not None:
                self.call(stream.close())


class SyncPushConsumer(SyncFace[PushConsumer]):
    """`PushConsumer` that runs in the background from `open` to `close`.

    The listener is called on threads of the consumer, or on the client's loop if it is a coroutine
    function. `changes` are fields of `PushSettings`.
    """

    def __init__(
        self,
        config: ClientConfig | str,
        group: str,
        listener: Listener,
        settings: PushSettings | None = None,
        **changes: Any,
    ) -> None:
        config = client_config(config)
        super().__init__(config, PushConsumer(config, group, listener, settings, **changes))

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """As `PushConsumer.subscribe`; before or after `open`."""
        self._change(partial(self.asynchronous.subscribe, topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        """As `PushConsumer.unsubscribe`; before or after `open`."""
        self._change(partial(self.asynchronous.unsubscribe, topic))

    def rebalance_soon(self) -> None:
        """As `PushConsumer.rebalance_soon`."""
        self._change(self.asynchronous.rebalance_soon)

    def _change(self, change: Callable[[], None]) -> None:
        """Apply a change on the loop; directly before `open`, when nothing runs there."""
        if self._thread is None:
            change()
        else:
            self.call(_run(change))


async def _run(change: Callable[[], None]) -> None:
    change()


async def _next(stream: PullStream) -> RecordRun | None:
    return await anext(stream, None)
