"""Writes messages that a reader could not use to a dead-letter topic, each once.

The id of a dead letter depends on the original alone. The writer looks for it in the index of the
dead-letter topic before it sends, so a reader that reads a range again adds no second copy. Two
readers of the same message at the same time may both write it; the copies have the same id and the
same row name (`SPARK_SINK_ROW`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker_core.client.admin.admin import Admin
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.dead_letters.letter import (
    ACTED_ON,
    ORIGIN_COMPRESSION,
    ORIGIN_TOPIC,
    REASON,
)
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.message_record import COMPRESSED, COMPRESSION_TYPE_BITS
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import DecompressionFailed, InvalidArgument

_PRODUCER_GROUP: Final = "RMQ_DEAD_LETTER_WRITER"
_AT_ONCE: Final = 32
_REASON_MAX: Final = 1_000
# Rows of a name are numbered within parts of this size, of which readers remember the newest.
_PART_BITS: Final = 16
_ROW_NAME: Final = "SPARK_SINK_ROW"


class BadMessage(NamedTuple):
    """A message that a reader could not use. `store_id` identifies the broker's log, if known."""

    queue: MessageQueue
    offset: int
    body: bytes
    reason: str
    store_id: str = ""

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
        found = hashlib.sha256(self.body).hexdigest()
        if original is not None:
            found = original.offset_message_id
        text = f"{queue.topic}\0{queue.broker_name}\0{queue.queue_id}\0{self.offset}\0{found}"
        return hashlib.sha256(text.encode()).hexdigest()[:32].upper()


class DeadLetterWriter:
    """Writes to `topic`, which must exist. Originals are read as `group`."""

    def __init__(self, client: ClientInstance, topic: str, group: str) -> None:
        self._client = client
        self._topic = topic
        self._admin = Admin(client)
        self._consumer = PullConsumer(client, group)

    async def check(self) -> None:
        """Raise `TopicNotExist` unless there is the topic."""
        await self._client.name_servers.route(self._topic)

    async def write(self, messages: Sequence[BadMessage]) -> int:
        """Write those that are not there yet; returns how many. All are stored, or it raises."""
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
        async with room:
            original = await self._original(message)
            unique_id = message.unique_id(original)
            if await self._is_there(unique_id):
                return False
            properties = message.properties()
            if original is None:
                dead = OutgoingMessage(
                    self._topic, message.body, properties=properties, unique_id=unique_id
                )
                await producer.send(dead)
            else:
                changes = {**dict.fromkeys(ACTED_ON, ""), **properties}
                changes |= {names.UNIQ_KEY: unique_id, names.WAIT: "true"}
                original, compression = _readable(original)
                changes[ORIGIN_COMPRESSION] = compression
                await producer.send_copy(original, self._topic, changes)
            return True

    async def _original(self, message: BadMessage) -> ReceivedMessage | None:
        """The stored message; None if it has expired since it was read."""
        found = await self._consumer.pull(message.queue, message.offset, max_count=1)
        return next((one for one in found.messages if one.queue_offset == message.offset), None)

    async def _is_there(self, unique_id: str) -> bool:
        found = await self._admin.query_messages(self._topic, unique_id, is_unique_id=True)
        # Apache's brokers return every message with the same hash.
        return any(record.properties.get(names.UNIQ_KEY) == unique_id for record in found)


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
