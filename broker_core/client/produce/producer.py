"""Sends messages: one, many at once, in order, as a batch, or without waiting for an answer.

`send` returns a future: `await producer.send(…)` waits for the broker, and many sends may be under
way together: `await asyncio.gather(*(producer.send(m) for m in messages))`. A result means that the
message is stored as safely as the broker promises; everything else is an error. After a timeout or
a lost connection the message may still be stored. A retry, here or in the application, can then
store it twice, both times with the same `msg_id`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.connection.lifecycle import Lifecycle
from broker_core.client.produce.coalescing import Coalescer
from broker_core.client.produce.engine import SendEngine
from broker_core.client.produce.outgoing_message import (
    OutgoingMessage,
    body_bytes,
    check_flag,
    property_text,
)
from broker_core.client.produce.pending_send import PendingSend, batch_item
from broker_core.client.produce.queue_choice import queue_for_key
from broker_core.client.produce.request_reply import (
    REPLY_TIMEOUT_MS,
    announce_requester,
    reply_to,
    send_reply,
)
from broker_core.client.produce.result import RecallResult, SendResult, SendStatus
from broker_core.client.produce.unique_ids import UniqueIds
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.compression import compress_body
from broker_core.codec.records.message_properties import change_properties
from broker_core.codec.records.message_record import COMPRESSED, COMPRESSION_TYPE_BITS
from broker_core.codec.records.record_layout import PROPERTY_TEXT_MAX
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.recall_handle import decode_handle
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX, topic_name_problem
from broker_core.errors import InvalidArgument, MessageTooLarge
from broker_core.protocol_codes import RequestCode

DEFAULT_GROUP: Final = "PYTHON_PRODUCER"
_TOPICS_REMEMBERED: Final = 10_000
# Larger messages gain nothing from sharing a request.
_SMALL_SIZE: Final = 8_192


class Producer(Lifecycle):
    """Sends messages. `start` before use and `stop` at the end, or `async with`.

    A `ClientInstance` is shared; from a `ClientConfig` the producer creates its own. `retries`
    applies to sends without a fixed queue. `coalesce` lets many small sends share requests.
    """

    def __init__(
        self,
        client: ClientInstance | ClientConfig,
        group: str = DEFAULT_GROUP,
        *,
        timeout_ms: int | None = None,
        retries: int = 2,
        accept_statuses: Collection[SendStatus] = (),
        in_flight_max: int = 1_024,
        in_flight_size_max: int = 32 << 20,
        waiting_max: int = 1_000_000,
        waiting_size_max: int = 256 << 20,
        coalesce: bool = True,
    ) -> None:
        self._owns_client = isinstance(client, ClientConfig)
        self.client = ClientInstance(client) if isinstance(client, ClientConfig) else client
        self.group = group
        self._config = self.client.config
        self._clock = self.client.clock
        self._timeout_ms = timeout_ms or self._config.request_timeout_ms
        self._attempts = 1 + retries
        self._ids = UniqueIds()
        self._topics: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine = SendEngine(
            self.client,
            group,
            in_flight_max=in_flight_max,
            in_flight_size_max=in_flight_size_max,
            waiting_max=waiting_max,
            waiting_size_max=waiting_size_max,
            accepted=frozenset(accept_statuses),
        )
        self._coalescer = Coalescer(self._engine, waiting_size_max) if coalesce else None

    async def start(self) -> None:
        """Register the group. The first send opens a connection."""
        self._loop = asyncio.get_running_loop()
        await self.client.start()
        self.client.add_producer(self.group)

    async def stop(self, wait_ms: float = 10_000) -> None:
        """Wait up to `wait_ms` for the sends under way; fail the rest and stop."""
        if self._loop is None:
            return
        self._loop = None
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.flush(), wait_ms / 1000)
        await self._engine.close()
        await self.client.remove_producer(self.group)
        if self._owns_client:
            await self.client.stop()

    async def flush(self) -> None:
        """Wait until every send has succeeded or failed."""
        while self._engine.unfinished or (self._coalescer and self._coalescer.unfinished):
            if self._coalescer is not None:
                self._coalescer.release()
            await self._engine.idle()
            # Messages of a refused batch are sent one by one in the next turn.
            await asyncio.sleep(0)

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
    ) -> asyncio.Future[SendResult]:
        """Send a message, or `body` to the topic given first; to `queue` if one is named.

        The result arrives once the message is stored. Invalid arguments raise immediately; a send
        fails with `TopicNotExist`, `MessageTooLarge`, `RequestTimeout`, `ConnectionLost`,
        `NotAcknowledged` or another error of the broker.
        """
        if isinstance(message, str):
            message = OutgoingMessage(message, body, tags, keys, properties or {}, delay_level)
        future: asyncio.Future[SendResult] = self._running_loop().create_future()
        request = self._request(message, future, queue, None, timeout_ms)
        is_special = queue is not None or timeout_ms is not None
        if self._coalescer is None or is_special or not _may_be_in_a_batch(message, request):
            self._engine.submit(request)
        else:
            self._coalescer.submit(request)
        return future

    def send_ordered(
        self,
        message: OutgoingMessage,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send to the queue of the key, after every earlier message of that queue.

        Messages of a key are stored in the order of the calls. A failed send is not retried and
        does not stop those after it: await each one if the order must have no gaps.
        """
        key = sharding_key if sharding_key is not None else message.sharding_key
        if not key:
            raise InvalidArgument("an ordered send needs a sharding_key")
        if message.sharding_key is None:
            message = message._replace(sharding_key=key)
        future: asyncio.Future[SendResult] = self._running_loop().create_future()
        self._engine.submit(self._request(message, future, None, key, timeout_ms))
        return future

    def send_batch(
        self,
        messages: Sequence[OutgoingMessage],
        queue: MessageQueue | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[tuple[SendResult, ...]]:
        """Send messages of one topic in one request: all are stored, one after another, or none.

        Raises `MessageTooLarge` when they are too large together.
        """
        topic = self._batch_topic(messages)
        now_ms = self._clock.wall_ms()
        unique_ids = [message.unique_id or self._ids.next(now_ms) for message in messages]
        items = [
            batch_item(
                body_bytes(message.body),
                property_text(message, unique_id),
                check_flag(message.flag),
            )
            for message, unique_id in zip(messages, unique_ids, strict=True)
        ]
        data = b"".join(items)
        self._check_size(len(data), f"a batch of {len(messages)} messages")
        future: asyncio.Future[tuple[SendResult, ...]] = self._running_loop().create_future()
        wait = "true" if messages[0].wait_store_ok else "false"
        request = PendingSend(
            topic,
            data,
            # The ids are in the items: Apache 4.9 adds the request's properties to every item.
            f"WAIT\x01{wait}\x02",
            unique_ids,
            future,
            born_ms=now_ms,
            fixed_queue=queue,
            attempts=self._attempts,
            timeout_s=(timeout_ms or self._timeout_ms) / 1000,
        )
        self._engine.submit(request)
        return future

    def send_copy(
        self, message: ReceivedMessage, topic: str, changes: Mapping[str, str]
    ) -> asyncio.Future[SendResult]:
        """Send a stored message again, to `topic`: body, flag and properties as they are stored.

        `changes` sets properties, RocketMQ's own included, or removes those with an empty value;
        it must set `UNIQ_KEY`. A message with a sharding key goes to the queue of the key.
        """
        request = self._copy(message, topic, changes)
        self._engine.submit(request)
        return request.future

    async def send_copy_once(
        self, message: ReceivedMessage, queue: MessageQueue, changes: Mapping[str, str]
    ) -> bool:
        """`send_copy` to a queue, unless the broker has a message of the topic with the same id.

        Returns whether it was stored now. It may be repeated after any error. The broker must offer
        `Capabilities.send_once`. Copies at other brokers are not looked for.
        """
        request = self._copy(message, queue.topic, changes)
        plain = request.command(self.group, queue)
        command = RemotingCommand(
            RequestCode.SEND_ONCE, plain.ext, plain.body, serialize_type=plain.serialize_type
        )
        answer = await self.client.ask_broker(queue.broker_name, command, self._timeout_ms)
        return answer.ext.get("repeat") != "true"

    def _copy(
        self, message: ReceivedMessage, topic: str, changes: Mapping[str, str]
    ) -> PendingSend:
        self._check_topic(topic)
        record = message.record
        body, sys_flag = record.body, record.sys_flag & (COMPRESSED | COMPRESSION_TYPE_BITS)
        if not body:
            body, sys_flag = compress_body(body), COMPRESSED
        self._check_size(len(body), "a body")
        text = change_properties(record.property_text, changes)
        if len(text) > PROPERTY_TEXT_MAX:
            size = f"{len(text)} bytes, at most {PROPERTY_TEXT_MAX} fit"
            raise MessageTooLarge(f"the properties of the copy take {size}")
        future: asyncio.Future[SendResult] = self._running_loop().create_future()
        return PendingSend(
            topic,
            body,
            text.decode("utf-8", "replace"),
            changes[names.UNIQ_KEY],
            future,
            born_ms=self._clock.wall_ms(),
            sys_flag=sys_flag,
            flag=record.flag,
            lane_key=message.properties.get(names.SHARDING_KEY),
            attempts=self._attempts,
            timeout_s=self._timeout_ms / 1000,
        )

    async def send_oneway(
        self, message: OutgoingMessage, queue: MessageQueue | None = None
    ) -> None:
        """Send without an answer: it is not known whether the message was stored."""
        request = self._request(message, self._running_loop().create_future(), queue, None, None)
        queues = await self.client.routes.publish_queues(message.topic)
        if queue is None and message.sharding_key:
            queue = queue_for_key(queues, message.sharding_key)
        if queue is None:
            queue = self._engine.choose_queue(message.topic, queues)
        address = self.client.routes.broker_address(queue.broker_name)
        await self.client.remoting.oneway(address, request.command(self.group, queue))

    async def recall(
        self, topic: str, recall_handle: str, timeout_ms: int | None = None
    ) -> RecallResult:
        """Cancel a timer message that is not yet due; see `SendResult.recall_handle`.

        Raises `RemoteError` when it was due already, and `InvalidArgument` when the handle is
        malformed or belongs to another topic.
        """
        self._running_loop()
        place = decode_handle(recall_handle)
        if place.topic != topic:
            text = f"the recall handle belongs to topic {place.topic}, not to {topic}"
            raise InvalidArgument(text)
        # Loads the address of the broker.
        await self.client.routes.route(topic)
        command = RemotingCommand(
            RequestCode.RECALL_MESSAGE,
            {
                "producerGroup": self.group,
                "topic": topic,
                "recallHandle": recall_handle,
                "bname": place.broker_name,
            },
        )
        answer = await self.client.ask_broker(
            place.broker_name, command, timeout_ms or self._timeout_ms
        )
        return RecallResult(answer.ext.get("msgId", ""), answer.ext.get("recalled") == "true")

    async def request(
        self,
        message: OutgoingMessage,
        timeout_ms: int = REPLY_TIMEOUT_MS,
        *,
        queue: MessageQueue | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of its consumer.

        Raises `RequestTimeout` when no reply came in time, and the errors of `send`.
        """
        self._running_loop()
        if message.delay_level or message.has_time:
            raise InvalidArgument(
                "a delayed message cannot be a request: request() waits for the reply"
            )
        await announce_requester(self.client, message.topic)
        with self.client.replies.expect(self.client.client_id, timeout_ms) as expected:
            asked = message._replace(properties={**message.properties, **expected.properties})
            await self.send(asked, queue=queue, timeout_ms=timeout_ms)
            return await expected.reply()

    async def reply(
        self,
        request: ReceivedMessage,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Reply to a message that was sent by `request`, of any client.

        Raises `InvalidArgument` for a message that expects no reply, and `RemoteError` when the
        requester is gone.
        """
        self._running_loop()
        message = reply_to(request, body, properties or {})
        await send_reply(self.client, self.group, request, message, timeout_ms or self._timeout_ms)

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that a message of `topic` may be sent to."""
        self._check_topic(topic)
        return await self.client.routes.publish_queues(topic)

    def _request(
        self,
        message: OutgoingMessage,
        future: asyncio.Future[SendResult],
        queue: MessageQueue | None,
        lane_key: str | None,
        timeout_ms: int | None,
    ) -> PendingSend:
        if message.topic not in self._topics:
            self._check_topic(message.topic)
        if queue is not None and queue.topic != message.topic:
            text = f"queue {queue.queue_id} of topic {queue.topic} cannot take a message of"
            raise InvalidArgument(f"{text} topic {message.topic}")
        body = message.body
        if type(body) is not bytes:
            body = body_bytes(body)
        size, sys_flag = len(body), 0
        if size > self._config.body_size_max:
            self._check_size(size, "a body")
        if not size:
            # Brokers of 5.x reject a request without a body; compressed, an empty one has 8 bytes.
            body, sys_flag = compress_body(body), COMPRESSED
        elif size >= self._config.compress_from_size > 0:
            packed = compress_body(body, self._config.compression_level)
            if len(packed) < size:
                body, sys_flag = packed, COMPRESSED
        now_ms = self._clock.wall_ms()
        unique_id = message.unique_id or self._ids.next(now_ms)
        return PendingSend(
            message.topic,
            body,
            property_text(message, unique_id),
            unique_id,
            future,
            born_ms=now_ms,
            sys_flag=sys_flag,
            flag=check_flag(message.flag) if message.flag else 0,
            fixed_queue=queue,
            lane_key=lane_key,
            attempts=self._attempts,
            timeout_s=(timeout_ms or self._timeout_ms) / 1000,
        )

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise InvalidArgument("the producer is not started; use `async with` or start()")
        return self._loop

    def _check_topic(self, topic: str) -> None:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise InvalidArgument(f"{problem}: {topic!r:.140}")
        if len(self._topics) < _TOPICS_REMEMBERED:
            self._topics.add(topic)

    def _check_size(self, size: int, what: str) -> None:
        limit = self._config.body_size_max
        if size > limit:
            raise MessageTooLarge(
                f"{what} of {size} bytes is over the limit of {limit} (body_size_max of the"
                " client; brokers have the same one, maxMessageSize)"
            )

    def _batch_topic(self, messages: Sequence[OutgoingMessage]) -> str:
        if not messages:
            raise InvalidArgument("a batch needs at least one message")
        topic = messages[0].topic
        self._check_topic(topic)
        if topic.startswith(RETRY_TOPIC_PREFIX):
            raise InvalidArgument(f"retry topics take no batches: {topic}")
        for message in messages:
            if message.topic != topic:
                text = f"a batch has messages of topics {topic} and {message.topic}"
                raise InvalidArgument(f"{text}; send one batch for each")
            if message.delay_level or message.has_time:
                raise InvalidArgument("messages of a batch cannot be delayed")
        return topic


def _may_be_in_a_batch(message: OutgoingMessage, request: PendingSend) -> bool:
    """Delayed and compressed messages and those to retry topics are sent alone."""
    return (
        request.sys_flag == "0"
        and not message.delay_level
        and not message.has_time
        and message.wait_store_ok
        and request.size < _SMALL_SIZE
        and not message.topic.startswith(RETRY_TOPIC_PREFIX)
    )
