"""Writes messages that a reader could not use to a dead-letter topic, each once.

The id of a dead letter depends on the original alone, and so does the broker that stores it: the
broker of the original if it has the topic, else one chosen by the id. Our broker stores a message
with an id once (SEND_ONCE), so readers of the same message, also at the same moment, add no copy.
Before that the writer asks the other brokers of the topic, because it may have been on them only.

With Apache's brokers the writer looks for the id in the index before it sends. Two readers at the
same time may both write it there; the copies have the same id and row name (`SPARK_SINK_ROW`).
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker_core.client.admin.admin import Admin
from broker_core.client.connection.backoff import Backoff, may_pass
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.dead_letters.letter import (
    ACTED_ON,
    ORIGIN_COMPRESSION,
    ORIGIN_TOPIC,
    REASON,
)
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.queue_choice import queue_for_key
from broker_core.client.produce.result import STATUS_OF_CODE
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.message_record import (
    COMPRESSED,
    COMPRESSION_TYPE_BITS,
    MessageRecord,
)
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.topic_config import PERM_WRITE
from broker_core.errors import (
    BrokerNotExist,
    DecompressionFailed,
    InvalidArgument,
    RemoteError,
    RmqError,
    SystemBusy,
)
from broker_core.protocol_codes import ResponseCode

_PRODUCER_GROUP: Final = "RMQ_DEAD_LETTER_WRITER"
_AT_ONCE: Final = 32
_REASON_MAX: Final = 1_000
_RETRY_FOR_MS: Final = 60_000
# Rows of a name are numbered within parts of this size, of which readers remember the newest.
_PART_BITS: Final = 16
_ROW_NAME: Final = "SPARK_SINK_ROW"


class BadMessage(NamedTuple):
    """A message that a reader could not use.

    `store_id` identifies the broker's log and `message_id` is the broker's id of the message, if
    they are known.
    """

    queue: MessageQueue
    offset: int
    body: bytes
    reason: str
    store_id: str = ""
    message_id: str = ""

    def properties(self) -> dict[str, str]:
        """The properties that name the origin and the reason."""
        queue, offset = self.queue, self.offset
        log = f"{queue.topic}\0{queue.broker_name}\0{self.store_id}"
        writer = f"dead-{hashlib.sha256(log.encode()).hexdigest()[:32]}"
        part, index = offset >> _PART_BITS, offset & ((1 << _PART_BITS) - 1)
        reason = self.reason[:_REASON_MAX].encode("utf-8", "replace").decode()
        return {
            ORIGIN_TOPIC: queue.topic,
            "ORIGIN_BROKER": queue.broker_name,
            "ORIGIN_QUEUE": str(queue.queue_id),
            "ORIGIN_OFFSET": str(offset),
            REASON: reason.translate({1: "?", 2: "?"}) or "unknown",
            _ROW_NAME: f"{writer}:{part}:{queue.queue_id}:{index}",
        }

    def unique_id(self, original: ReceivedMessage | None) -> str:
        """The id of its dead letter. The broker's id tells it from others at the same offset."""
        queue = self.queue
        found = self.message_id or hashlib.sha256(self.body).hexdigest()
        if original is not None:
            found = original.offset_message_id
        text = f"{queue.topic}\0{queue.broker_name}\0{queue.queue_id}\0{self.offset}\0{found}"
        return hashlib.sha256(text.encode()).hexdigest()[:32].upper()


class DeadLetterWriter:
    """Writes to `topic`, which must exist. Originals are read as `group`.

    A broker that cannot be reached is asked again for `retry_for_ms`.
    """

    def __init__(
        self,
        client: ClientInstance,
        topic: str,
        group: str,
        *,
        retry_for_ms: float = _RETRY_FOR_MS,
    ) -> None:
        self._client = client
        self._topic = topic
        self._retry_for_ms = retry_for_ms
        self._admin = Admin(client)
        self._consumer = PullConsumer(client, group)

    async def check(self) -> None:
        """Raise `TopicNotExist` unless there is the topic."""
        await self._client.name_servers.route(self._topic)

    async def write(self, messages: Sequence[BadMessage]) -> int:
        """Write those that are not there yet; returns how many. All are stored, or it raises.

        A message whose request was repeated may have been stored by the first one; then it does not
        count.
        """
        for message in messages:
            if message.queue.topic == self._topic:
                text = f"a bad message of the dead-letter topic {self._topic} itself, at offset"
                raise InvalidArgument(f"{text} {message.offset}: read it with another topic")
        room = asyncio.Semaphore(_AT_ONCE)
        async with Producer(self._client, _PRODUCER_GROUP) as producer:
            work = (self._write(producer, message, room) for message in messages)
            found = await asyncio.gather(*work, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return sum(map(bool, found))

    async def _write(
        self, producer: Producer, message: BadMessage, room: asyncio.Semaphore
    ) -> bool:
        """Whether it was stored now. Repeated until the outcome is known."""
        clock, backoff = self._client.clock, Backoff()
        async with room:
            deadline = clock.monotonic() + self._retry_for_ms / 1000
            while True:
                try:
                    original = await self._original(message)
                    unique_id = message.unique_id(original)
                    broker, is_only = await self._broker_of(message, unique_id)
                    stores_once = await self._stores_once(broker)
                    if not (stores_once and is_only) and await self._is_there(unique_id):
                        return False
                    copied, changes = self._copy(message, original)
                    changes[names.UNIQ_KEY] = unique_id
                    if stores_once:
                        queue = await self._queue_at(broker, copied, unique_id)
                        return await producer.send_copy_once(copied, queue, changes)
                    break
                except RmqError as error:
                    if not _may_be_repeated(error) or clock.monotonic() > deadline:
                        raise
                self._client.routes.refresh_soon(self._topic)
                await backoff.wait()
            await producer.send_copy(copied, self._topic, changes)
            return True

    def _copy(
        self, message: BadMessage, original: ReceivedMessage | None
    ) -> tuple[ReceivedMessage, dict[str, str]]:
        """What is sent, and the properties that are different from its own."""
        changes = {**dict.fromkeys(ACTED_ON, ""), **message.properties(), names.WAIT: "true"}
        if original is None:
            record = MessageRecord(self._topic, 0, message.body)
            return ReceivedMessage(record, message.queue), changes
        copied, changes[ORIGIN_COMPRESSION] = _readable(original)
        return copied, changes

    async def _broker_of(self, message: BadMessage, unique_id: str) -> tuple[str, bool]:
        """The broker that stores the dead letter, and whether it is the only one of the topic.

        That of the original keeps the dead letter at least as long as the original. A broker whose
        master is down still counts: what it has stored is not known.
        """
        route = await self._client.routes.route(self._topic)
        brokers = sorted({data.broker_name for data in route.queues if data.perm & PERM_WRITE})
        if not brokers:
            text = f"topic {self._topic} has no queue that can be written to"
            raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
        if message.queue.broker_name in brokers:
            return message.queue.broker_name, len(brokers) == 1

        def weight(name: str) -> bytes:
            return hashlib.sha256(f"{name}\0{unique_id}".encode()).digest()

        return max(brokers, key=weight), len(brokers) == 1

    async def _stores_once(self, broker: str) -> bool:
        capabilities = self._client.capabilities
        address = self._client.routes.broker_address(broker)
        found = await capabilities.of(address)
        if not found.send_once and not capabilities.is_known(address):
            text = f"broker {broker} does not report its capabilities yet"
            raise SystemBusy(ResponseCode.SYSTEM_BUSY, text)
        return found.send_once

    async def _queue_at(self, broker: str, copied: ReceivedMessage, unique_id: str) -> MessageQueue:
        offered = await self._client.routes.publish_queues(self._topic)
        queues = tuple(queue for queue in offered if queue.broker_name == broker)
        if not queues:
            text = f"broker {broker}, which stores dead letters of its messages in {self._topic}"
            raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, f"{text}, has no master")
        key = copied.properties.get(names.SHARDING_KEY)
        if key:
            return queue_for_key(queues, key)
        return queues[zlib.crc32(unique_id.encode()) % len(queues)]

    async def _original(self, message: BadMessage) -> ReceivedMessage | None:
        """The stored message; None if it has expired since it was read."""
        found = await self._consumer.pull(message.queue, message.offset, max_count=1)
        return next((one for one in found.messages if one.queue_offset == message.offset), None)

    async def _is_there(self, unique_id: str) -> bool:
        found = await self._admin.query_messages(self._topic, unique_id, is_unique_id=True)
        # Apache's brokers return every message with the same hash.
        return any(record.properties.get(names.UNIQ_KEY) == unique_id for record in found)


def _may_be_repeated(error: RmqError) -> bool:
    """SEND_ONCE is idempotent, so every error that may pass is repeated."""
    return may_pass(error) or (isinstance(error, RemoteError) and error.code in STATUS_OF_CODE)


def _readable(message: ReceivedMessage) -> tuple[ReceivedMessage, str]:
    """The message, and how it said that it was compressed if it is not readable so.

    The dead letter has the stored bytes then: readers of its topic can read them.
    """
    try:
        _ = message.body
    except DecompressionFailed:
        sys_flag = message.record.sys_flag
        bits = sys_flag & (COMPRESSED | COMPRESSION_TYPE_BITS)
        return message.with_sys_flag(sys_flag & ~bits), str(bits)
    return message, ""
