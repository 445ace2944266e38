"""`SyncProducer` and `SyncAdmin`: the async classes for threads, scripts and notebooks.

Each call hops onto the shared loop thread and waits for the answer, so they work where an event
loop is already running (a notebook's, say) and in threads that have none. Use them with `with`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Final, TypeVar

from broker_core.client.admin import Admin
from broker_core.client.client_config import ClientConfig, parse_name_servers
from broker_core.client.loop_thread import LoopThread, shared_thread
from broker_core.client.message_recall import RecallResult
from broker_core.client.outgoing_message import OutgoingMessage
from broker_core.client.producer import DEFAULT_GROUP, Producer
from broker_core.client.received_message import ReceivedMessage
from broker_core.client.request_reply import REPLY_TIMEOUT_MS
from broker_core.client.send_result import SendResult, SendStatus
from broker_core.client.topic_queues import Queues
from broker_core.codec.group_config import GroupConfig
from broker_core.codec.message_queue import MessageQueue
from broker_core.codec.message_record import MessageRecord
from broker_core.codec.route_data import ClusterInfo, TopicRoute
from broker_core.errors import InvalidArgument

T = TypeVar("T")
Face = TypeVar("Face", bound="SyncFace")

# How many messages of `send_many` are handed over at a time.
_MANY: Final = 10_000


class SyncFace:
    """What sync faces have in common: a place on the shared thread, from `open` to `close`."""

    def __init__(self, config: ClientConfig | str) -> None:
        if isinstance(config, str):
            config = ClientConfig(parse_name_servers(config))
        self.config = config
        self._thread: LoopThread | None = None

    def __enter__(self: Face) -> Face:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start; `with` does this."""
        if self._thread is not None:
            return
        thread = shared_thread.acquire()
        try:
            thread.call(self._open())
        except BaseException:
            shared_thread.release(thread)
            raise
        self._thread = thread

    def close(self) -> None:
        """Stop; harmless when done already."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                if thread.is_alive:
                    thread.call(self._close())
            finally:
                shared_thread.release(thread)

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine where the client lives."""
        return self._running(coroutine).call(coroutine, timeout_s)

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """As `call`, without waiting."""
        return self._running(coroutine).begin(coroutine)

    async def _open(self) -> None:
        raise NotImplementedError

    async def _close(self) -> None:
        raise NotImplementedError

    def _running(self, coroutine: Coroutine[Any, Any, Any]) -> LoopThread:
        if self._thread is None:
            coroutine.close()
            raise InvalidArgument(f"{type(self).__name__} is not open; use it with `with`")
        return self._thread


class SyncProducer(SyncFace):
    """`Producer` with calls that wait. Any thread may call it."""

    def __init__(
        self,
        config: ClientConfig | str,
        group: str = DEFAULT_GROUP,
        *,
        timeout_ms: int | None = None,
        retries: int = 2,
        accept_statuses: Collection[SendStatus] = (),
    ) -> None:
        super().__init__(config)
        self._producer = Producer(
            self.config,
            group,
            timeout_ms=timeout_ms,
            retries=retries,
            accept_statuses=accept_statuses,
        )

    async def _open(self) -> None:
        await self._producer.start()

    async def _close(self) -> None:
        await self._producer.stop()

    def send(
        self,
        message: OutgoingMessage | str,
        body: bytes = b"",
        *,
        tags: str = "",
        keys: str = "",
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message, or `body` to the topic given first, and wait until it is stored."""
        if isinstance(message, str):
            message = OutgoingMessage(message, body, tags, keys, properties or {}, delay_level)
        return self.call(self._send(message, queue, timeout_ms))

    def send_async(
        self, message: OutgoingMessage, queue: MessageQueue | None = None
    ) -> concurrent.futures.Future[SendResult]:
        """Send without waiting; the future gets the result."""
        return self.begin(self._send(message, queue, None))

    def send_many(self, messages: Iterable[OutgoingMessage]) -> list[SendResult]:
        """Send all, many at once, and wait; raises the first error once all have ended.

        Far faster than one `send` after another. The order in which they are stored is not given.
        """
        results: list[SendResult] = []
        rest = iter(messages)
        while part := list(islice(rest, _MANY)):
            results += self.call(self._send_all(part))
        return results

    def send_ordered(self, message: OutgoingMessage, sharding_key: str | None = None) -> SendResult:
        """Send to the queue of the key; calls one after another are stored in that order."""
        return self.call(self._send_ordered(message, sharding_key))

    def send_batch(
        self, messages: Sequence[OutgoingMessage], queue: MessageQueue | None = None
    ) -> tuple[SendResult, ...]:
        """Send messages of one topic in one request: all are stored or none."""
        return self.call(self._send_batch(messages, queue))

    def send_oneway(self, message: OutgoingMessage, queue: MessageQueue | None = None) -> None:
        """Send without an answer: nobody learns whether the message was stored."""
        self.call(self._producer.send_oneway(message, queue))

    def recall(self, topic: str, recall_handle: str) -> RecallResult:
        """Take back a timer message whose time has not come; see `Producer.recall`."""
        return self.call(self._producer.recall(topic, recall_handle))

    def request(
        self, message: OutgoingMessage, timeout_ms: int = REPLY_TIMEOUT_MS
    ) -> ReceivedMessage:
        """Send a message and wait for the answer of the consumer that gets it."""
        return self.call(self._producer.request(message, timeout_ms=timeout_ms))

    def reply(self, request: ReceivedMessage, body: bytes) -> None:
        """Answer a message that `request`, of any client, has sent."""
        self.call(self._producer.reply(request, body))

    def publish_queues(self, topic: str) -> Queues:
        """The queues that a message of `topic` may be sent to."""
        return self.call(self._producer.publish_queues(topic))

    def flush(self) -> None:
        """Wait until every send has its result."""
        self.call(self._producer.flush())

    # `Producer.send` must be called on the loop, not only awaited there.

    async def _send(
        self, message: OutgoingMessage, queue: MessageQueue | None, timeout_ms: int | None
    ) -> SendResult:
        return await self._producer.send(message, queue=queue, timeout_ms=timeout_ms)

    async def _send_all(self, messages: list[OutgoingMessage]) -> list[SendResult]:
        futures = [self._producer.send(message) for message in messages]
        if futures:
            await asyncio.wait(futures)
        # The first failure is raised; nobody would ever look at the others.
        failed = [future for future in futures if future.exception() is not None]
        return [future.result() for future in (failed or futures)]

    async def _send_ordered(self, message: OutgoingMessage, key: str | None) -> SendResult:
        return await self._producer.send_ordered(message, key)

    async def _send_batch(
        self, messages: Sequence[OutgoingMessage], queue: MessageQueue | None
    ) -> tuple[SendResult, ...]:
        return await self._producer.send_batch(messages, queue=queue)


class SyncAdmin(SyncFace):
    """`Admin` with calls that wait. Any thread may call it."""

    def __init__(self, config: ClientConfig | str) -> None:
        super().__init__(config)
        self._admin = Admin(self.config)

    @property
    def asynchronous(self) -> Admin:
        """The same for coroutines that are handed to `call`."""
        return self._admin

    async def _open(self) -> None:
        await self._admin.start()

    async def _close(self) -> None:
        await self._admin.stop()

    def cluster_info(self) -> ClusterInfo:
        """Every broker and cluster that the name servers know."""
        return self.call(self._admin.cluster_info())

    def topics(self) -> tuple[str, ...]:
        """Every topic, in order, those of the system included."""
        return self.call(self._admin.topics())

    def route(self, topic: str) -> TopicRoute:
        """Where a topic lives. Raises `TopicNotExist`."""
        return self.call(self._admin.route(topic))

    def create_topic(self, topic: str, **options: Any) -> None:
        """Create or change a topic; options as of `Admin.create_topic`."""
        self.call(self._admin.create_topic(topic, **options))

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic on brokers and name servers."""
        self.call(self._admin.delete_topic(topic, cluster))

    def create_group(self, group: GroupConfig | str, **options: Any) -> None:
        """Create or change a consumer group; options as of `Admin.create_group`."""
        self.call(self._admin.create_group(group, **options))

    def delete_group(self, group: str, **options: Any) -> None:
        """Delete a consumer group; options as of `Admin.delete_group`."""
        self.call(self._admin.delete_group(group, **options))

    def queues(self, topic: str) -> Queues:
        """The readable queues of a topic."""
        return self.call(self._admin.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that can still be read."""
        return self.call(self._admin.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self.call(self._admin.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at that time or later."""
        return self.call(self._admin.offset_by_time(queue, timestamp_ms))

    def topic_offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """First and next offset of every readable queue."""
        return self.call(self._admin.topic_offsets(topic))

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """How far a group has come; None when it never said."""
        return self.call(self._admin.committed_offset(group, queue))

    def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """`committed_offset` of every readable queue of a topic."""
        return self.call(self._admin.committed_offsets(group, topic))

    def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Say how far a group has come."""
        self.call(self._admin.commit_offset(group, queue, offset))

    def reset_offsets(self, group: str, topic: str, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Set a group's progress to a time; see `Admin.reset_offsets`."""
        return self.call(self._admin.reset_offsets(group, topic, timestamp_ms))

    def view_message(self, offset_msg_id: str, topic: str = "") -> MessageRecord:
        """The stored message of an offset id."""
        return self.call(self._admin.view_message(offset_msg_id, topic))

    def query_messages(self, topic: str, key: str, **options: Any) -> list[MessageRecord]:
        """Messages with a key; options as of `Admin.query_messages`."""
        return self.call(self._admin.query_messages(topic, key, **options))
