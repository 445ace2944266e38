"""The records of a delayed message: the waiting record and the delivered copy.

Pure. A delayed message is stored in `SCHEDULE_TOPIC_XXXX`, one queue per level; REAL_TOPIC and
REAL_QID have its destination. The delivered copy is stored there. It has the log position of the
waiting record, inverted, in PREPARED TRANSACTION OFFSET, so the log shows which messages were
delivered, even after a crash. Inverted, because 0 is a valid position, and because positive values
belong to the half messages of transactions.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from broker_core.codec.records.message_properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_PROPERTIES,
    change_properties,
    split_properties,
)
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.topic_name import (
    APPEND_GROUP_TOPIC,
    SCHEDULE_TOPIC,
    TRANSACTION_HALF_TOPIC,
    topic_name_problem,
)
from broker_core.errors import InvalidArgument, MalformedRecord
from broker_core.store.writes.message import Message

_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,10}")
_QUEUE_ID: Final = re.compile(rb"[0-9]{1,9}")
# A copy to one of these would be delayed again or misread.
_NEVER_REAL: Final = frozenset({SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC, APPEND_GROUP_TOPIC})


class StoredForm(NamedTuple):
    """Topic, queue and property text under which a message is stored."""

    topic: str
    queue_id: int
    text: bytes


def delay_level(text: str) -> int:
    """The level of a DELAY property; 0 or less for none."""
    if _LEVEL.fullmatch(text) is None:
        raise InvalidArgument(f"property DELAY is {text[:40]!r}: give a level, 1 or more")
    return int(text)


def delayed_form(topic: str, queue_id: int, text: bytes, level: int, level_max: int) -> StoredForm:
    """Waiting form of a message for `topic`; a level above the last becomes the last."""
    level = _capped(level, level_max)
    # A level takes precedence over the times that 5.x clients may set.
    changes = dict.fromkeys(TIMER_PROPERTIES, "") | _origin(topic, queue_id, level)
    return StoredForm(SCHEDULE_TOPIC, level - 1, change_properties(text, changes))


def delayed(message: Message, level: int, level_max: int) -> Message:
    """`delayed_form` for a message with its properties as a mapping."""
    level = _capped(level, level_max)
    kept = {name: v for name, v in message.properties.items() if name not in TIMER_PROPERTIES}
    return message._replace(
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=kept | _origin(message.topic, message.queue_id, level),
    )


def delivered(record: MessageRecord) -> MessageRecord:
    """The copy of a waiting record for its destination; `MalformedRecord` without one.

    The property text is unchanged, DELAY, REAL_TOPIC and REAL_QID included, as in RocketMQ. The
    store fills in offsets, store time and store host.
    """
    pairs = split_properties(record.property_text)
    topic = pairs.get(REAL_TOPIC.encode(), b"").decode("latin-1")
    problem = topic_name_problem(topic)
    if problem is None and topic in _NEVER_REAL:
        problem = f"{topic} is not a topic to deliver to"
    if problem is not None:
        raise MalformedRecord(record.physical_offset, f"{REAL_TOPIC}: {problem}")
    queue_id = pairs.get(REAL_QID.encode(), b"")
    return record._replace(
        topic=topic,
        # A message without a valid queue is delivered all the same.
        queue_id=int(queue_id) if _QUEUE_ID.fullmatch(queue_id) else 0,
        prepared_transaction_offset=~record.physical_offset,
    )


def shortened(record: MessageRecord) -> MessageRecord:
    """The same copy without the properties of the delay, for a property text at its size limit.

    A record of another broker may fill the text completely; our checksum needs 20 bytes.
    """
    changes = dict.fromkeys((DELAY, REAL_TOPIC, REAL_QID), "")
    return record._replace(property_text=change_properties(record.property_text, changes))


def waiting_position(prepared_offset: int) -> int | None:
    """Log position of the waiting record whose copy has this PREPARED TRANSACTION OFFSET."""
    return ~prepared_offset if prepared_offset < 0 else None


def _capped(level: int, level_max: int) -> int:
    if level < 1 or level_max < 1:
        raise InvalidArgument(
            f"delay level {level} of {level_max}: this broker has no such level (messageDelayLevel)"
        )
    return min(level, level_max)


def _origin(topic: str, queue_id: int, level: int) -> dict[str, str]:
    return {DELAY: str(level), REAL_TOPIC: topic, REAL_QID: str(queue_id)}
