"""The records of a transaction: the half message, its outcome, and the note that it has ended.

Pure. A half message waits in `RMQ_SYS_TRANS_HALF_TOPIC`, which nobody consumes, and remembers where
it belongs in REAL_TOPIC and REAL_QID. A commit stores a copy under its own topic. The copy carries
the log position of the half message in PREPARED TRANSACTION OFFSET, as RocketMQ's does: copy and
mark are one record, so the log itself tells which halves were committed, whatever happens to the
broker. An op record in `RMQ_SYS_TRANS_OP_HALF_TOPIC` names halves that have ended either way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.broker.parked_message import delay_level, park
from broker_core.broker.request_fields import checked_group
from broker_core.broker.system_topics import (
    TRANSACTION_GIVEN_UP_TOPIC,
    TRANSACTION_HALF_TOPIC,
    refuses_sends,
)
from broker_core.broker.timer_message import commit_due_ms, park_timer
from broker_core.codec import message_properties as names
from broker_core.codec.message_properties import change_properties
from broker_core.codec.message_record import MessageRecord, encode_record
from broker_core.codec.record_layout import TRANSACTION_BITS, TRANSACTION_COMMIT
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.codec.topic_name import topic_name_problem
from broker_core.errors import InvalidArgument, MalformedRecord, RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode

HALF_QUEUE: Final = 0
OP_TAG: Final = "d"
OP_TEXT: Final = b"TAGS\x01d\x02"
# An op that names no half: no other broker minds it, and a half message that would be the first
# record of a log has a position that can be told from nothing.
NO_HALF: Final = b"-1"

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_SECONDS: Final = re.compile(r"[0-9]{1,9}")


class Half(NamedTuple):
    """A half message and what its properties say."""

    record: MessageRecord
    group: str
    unique_key: str
    topic: str
    queue_id: int
    # How often another broker, which stores it anew each time, has asked already.
    check_times: int
    immunity_ms: int | None
    # Offset of the half that another broker stored first, when this is a copy of that.
    first_offset: int | None


def is_half(properties: Mapping[str, str], topic: str, reconsume_times: int, level: int) -> bool:
    """Whether a send opens a transaction.

    A committed message keeps TRAN_MSG; a consumer that sends it to its retry topic opens none.
    """
    is_resend = reconsume_times > 0 and (level > 0 or topic.startswith("%"))
    return properties.get(names.TRANSACTION_PREPARED, "").lower() == "true" and not is_resend


def half_changes(
    properties: Mapping[str, str], group: str, topic: str, queue_id: int, unique_key: str
) -> dict[str, str]:
    """Properties that a half message gets.

    Raises `RemoteError` when it names another's group, `InvalidArgument` for one that cannot be.
    """
    owner = properties.get(names.PRODUCER_GROUP, checked_group(group))
    if owner != group:
        # Its producers would be asked about it, and it could end what this one began.
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a transaction of producer group {group[:255]} names another group in "
            f"{names.PRODUCER_GROUP}: {owner[:255]}",
        )
    return {
        names.PRODUCER_GROUP: group,
        names.REAL_TOPIC: topic,
        names.REAL_QID: str(queue_id),
        names.TRANSACTION_ID: unique_key,
        names.TRANSACTION_CHECK_TIMES: "",
        names.TRANSACTION_PREPARED_QUEUE_OFFSET: "",
    }


def read_half(record: MessageRecord) -> Half:
    """`MalformedRecord` for one that nobody can ever commit."""
    properties = record.properties
    topic = properties.get(names.REAL_TOPIC, "")
    problem = topic_name_problem(topic)
    if problem is None and refuses_sends(topic):
        problem = f"{topic} is not a topic to deliver to"
    if problem is not None:
        raise MalformedRecord(record.physical_offset, f"{names.REAL_TOPIC}: {problem}")
    seconds = properties.get(names.CHECK_IMMUNITY_TIME, "")
    return Half(
        record,
        properties.get(names.PRODUCER_GROUP, ""),
        properties.get(names.UNIQ_KEY, ""),
        topic,
        _number(properties, names.REAL_QID) or 0,
        _number(properties, names.TRANSACTION_CHECK_TIMES) or 0,
        int(seconds) * 1000 if _SECONDS.fullmatch(seconds) else None,
        _number(properties, names.TRANSACTION_PREPARED_QUEUE_OFFSET),
    )


def committed(half: Half, level_max: int, now_ms: int = 0) -> MessageRecord:
    """The copy that consumers get, or that waits for its delay or its time first.

    The property text stays as it is, as RocketMQ leaves it.
    """
    record = half.record
    copy = record._replace(
        topic=half.topic,
        queue_id=half.queue_id,
        sys_flag=record.sys_flag & ~TRANSACTION_BITS | TRANSACTION_COMMIT,
        prepared_transaction_offset=record.physical_offset,
    )
    level = _level(record.properties)
    due_ms = commit_due_ms(record.properties, now_ms) if level < 1 else None
    if due_ms is not None:
        parked = park_timer(half.topic, half.queue_id, record.property_text, due_ms)
    elif level < 1 or level_max < 1:
        return copy
    else:
        parked = park(half.topic, half.queue_id, record.property_text, level, level_max)
    return copy._replace(topic=parked.topic, queue_id=parked.queue_id, property_text=parked.text)


def shortened(copy: MessageRecord) -> MessageRecord:
    """The same copy without what only the broker needs, for a text that has no room left.

    A record of another broker may fill the text to the last byte; our checksum needs 20.
    """
    dropped = (names.TRANSACTION_ID, names.TRANSACTION_CHECK_TIMES, names.TRANSACTION_PREPARED)
    text = change_properties(copy.property_text, dict.fromkeys(dropped, ""))
    return copy._replace(property_text=text)


def given_up(record: MessageRecord) -> MessageRecord:
    """The copy for those who look after transactions that nobody ended."""
    return record._replace(
        topic=TRANSACTION_GIVEN_UP_TOPIC,
        queue_id=0,
        prepared_transaction_offset=record.physical_offset,
    )


def half_position(prepared_offset: int) -> int | None:
    """Log position of the half message whose outcome has this PREPARED TRANSACTION OFFSET."""
    return prepared_offset if prepared_offset > 0 else None


def op_body(offset: int) -> bytes:
    """Names one half. Without a comma, because 4.x brokers read nothing else."""
    return b"%d" % offset


def ended_offsets(record: MessageRecord) -> list[int]:
    """Half offsets that an op record names: one, or several as 5.x brokers write them."""
    if record.properties.get(names.TAGS) != OP_TAG:
        return []
    parts = record.body.decode("latin-1").split(",")
    return [int(part) for part in parts if _NUMBER.fullmatch(part)]


def check_request(half: Half, times: int, broker_name: str) -> RemotingCommand:
    """CHECK_TRANSACTION_STATE: the half message as it was sent, and where it is."""
    record = half.record
    changes = {names.TRANSACTION_CHECK_TIMES: str(times)}
    shown = record._replace(
        topic=half.topic,
        queue_id=half.queue_id,
        property_text=change_properties(record.property_text, changes),
    )
    ext = {
        "tranStateTableOffset": str(record.queue_offset),
        "commitLogOffset": str(record.physical_offset),
        "msgId": half.unique_key,
        "transactionId": half.unique_key,
        "offsetMsgId": record.message_id,
        "topic": half.topic,
        "bname": broker_name,
    }
    try:
        body = encode_record(shown, append_crc=False)
    except InvalidArgument:
        # No room for the number of checks.
        shown = shown._replace(property_text=record.property_text)
        body = encode_record(shown, append_crc=False)
    return RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, ext, body)


def is_at(record: MessageRecord | None, offset: int) -> bool:
    """Whether a record is the half message with this offset."""
    return (
        record is not None
        and record.topic == TRANSACTION_HALF_TOPIC
        and (record.queue_id, record.queue_offset) == (HALF_QUEUE, offset)
    )


def _level(properties: Mapping[str, str]) -> int:
    try:
        return delay_level(properties.get(names.DELAY, "0"))
    except InvalidArgument:
        return 0


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else None
