"""A dead letter: where it comes from, and the properties of its replay. Pure.

A replay keeps every property of the dead letter, those of its origin included, except what a broker
would act on again: delay, delivery time, transaction, handles of pops.
"""

from __future__ import annotations

import hashlib
from typing import Final

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.message_record import COMPRESSED, COMPRESSION_TYPE_BITS
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.pop_handle import FIRST_POP_TIME, POP_CK
from broker_core.codec.wire.topic_name import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX

REPLAY_OF: Final = "REPLAY_OF"
"""Property of a replay: `topic:broker:queue:offset` of the dead letter."""
REPLAY_OF_ID: Final = "REPLAY_OF_ID"
"""Property of a replay: the message id of the dead letter."""
ORIGIN_TOPIC: Final = "ORIGIN_TOPIC"
"""Property of a message in a dead-letter topic of an application: the topic that it was for."""
REASON: Final = "DEAD_LETTER_REASON"
"""Property of a message in a dead-letter topic of an application: why it is there."""
ORIGIN_COMPRESSION: Final = "ORIGIN_COMPRESSION"
"""Property of a dead letter whose body could not be decompressed: the bits of its system flag that
say how it was compressed. The dead letter has the body as it was stored and these bits not."""

_COMPRESSION_BITS: Final = COMPRESSED | COMPRESSION_TYPE_BITS
# The first of these that a dead letter has names the topic that it was for.
_ORIGINS: Final = (names.RETRY_TOPIC, names.DLQ_ORIGIN_TOPIC, ORIGIN_TOPIC)
ACTED_ON: Final = (
    names.DELAY,
    names.REAL_TOPIC,
    names.REAL_QID,
    names.MAX_RECONSUME_TIMES,
    names.TRANSACTION_PREPARED,
    names.TRANSACTION_PREPARED_QUEUE_OFFSET,
    names.TRANSACTION_CHECK_TIMES,
    names.PRODUCER_GROUP,
    names.INNER_MULTI_DISPATCH,
    names.INNER_MULTI_QUEUE_OFFSET,
    names.CRC32,
    FIRST_POP_TIME,
    POP_CK,
    *names.TIMER_PROPERTIES,
    "TIMER_DELAY_LEVEL",
    "TIMER_DEL_UNIQKEY",
    "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_OUT_MS",
    "TIMER_ROLL_TIMES",
)
"""Properties that a broker would act on again; a copy does not have them."""


def dead_letter_topic(group: str) -> str:
    """The topic with the dead letters of a consumer group."""
    return f"{DLQ_TOPIC_PREFIX}{group}"


class DeadLetter:
    """One message of a dead-letter topic."""

    __slots__ = ("message",)

    def __init__(self, message: ReceivedMessage) -> None:
        self.message = message

    def __repr__(self) -> str:
        return f"DeadLetter({self.place}, for {self.origin_topic or 'an unknown topic'})"

    @property
    def queue(self) -> MessageQueue:
        return self.message.queue

    @property
    def offset(self) -> int:
        return self.message.queue_offset

    @property
    def place(self) -> str:
        """`topic:broker:queue:offset`."""
        queue = self.queue
        return f"{queue.topic}:{queue.broker_name}:{queue.queue_id}:{self.offset}"

    @property
    def origin_topic(self) -> str:
        """The topic that it was for; "" if no property names it."""
        properties = self.message.properties
        found = (properties.get(name, "") for name in _ORIGINS)
        return next((topic for topic in found if topic and not _is_internal(topic)), "")

    @property
    def origin_message_id(self) -> str:
        """The broker's id of the message that failed first; "" if no property names it."""
        properties = self.message.properties
        return properties.get(
            names.ORIGIN_MESSAGE_ID, properties.get(names.DLQ_ORIGIN_MESSAGE_ID, "")
        )

    @property
    def reconsume_times(self) -> int:
        """How often its group has retried it."""
        return self.message.reconsume_times

    @property
    def reason(self) -> str:
        """Why it is here; "" if no property says so."""
        return self.message.properties.get(REASON, "")

    @property
    def replay_id(self) -> str:
        """The id (`UNIQ_KEY`) of its replays: the same for each, different from its own.

        The broker's id is part of it, because a recreated topic numbers its offsets from 0 again.
        """
        text = f"{self.place}\0{self.message.offset_message_id}"
        return hashlib.sha256(text.encode()).hexdigest()[:32].upper()

    def replayed_message(self) -> ReceivedMessage:
        """The message to send a copy of, with the flag of a compressed body if it had it."""
        bits = self.message.properties.get(ORIGIN_COMPRESSION, "")
        if not bits.isdecimal() or len(bits) > 9:
            return self.message
        record = self.message.record
        return self.message.with_sys_flag(record.sys_flag | int(bits) & _COMPRESSION_BITS)

    def replay_changes(self, target: str) -> dict[str, str]:
        """The properties that a replay to `target` changes; "" takes one away."""
        changes = dict.fromkeys(ACTED_ON, "")
        origin = self.origin_topic
        changes |= {
            names.UNIQ_KEY: self.replay_id,
            names.WAIT: "true",
            REPLAY_OF: self.place,
            REPLAY_OF_ID: self.message.message_id,
            ORIGIN_COMPRESSION: "",
        }
        if self.reconsume_times:
            changes[names.RECONSUME_TIME] = str(self.reconsume_times)
        if origin and self.queue.topic.startswith(DLQ_TOPIC_PREFIX):
            changes[names.DLQ_ORIGIN_TOPIC] = origin
        if target != self.message.properties.get(names.RETRY_TOPIC, target):
            # A broker gives it to the retries of the replay, whose topic would then be wrong.
            changes[names.RETRY_TOPIC] = ""
        return changes


def _is_internal(topic: str) -> bool:
    return topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))
