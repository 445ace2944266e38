"""The records of a transaction: the half message, its outcome, and the note that it has ended.

Pure. A half message waits in `RMQ_SYS_TRANS_HALF_TOPIC`, which has no consumers; REAL_TOPIC and
REAL_QID have its destination. A commit stores a copy there. The copy has the log position of the
half message in PREPARED TRANSACTION OFFSET, as in RocketMQ: copy and mark are one record, so the
log shows which halves were committed, even after a crash. An op record in
`RMQ_SYS_TRANS_OP_HALF_TOPIC` names halves that have ended either way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.broker.request_fields import checked_group
from broker_core.broker.scheduled.delayed_message import delay_level, delayed_form
from broker_core.broker.scheduled.timer_message import commit_due_ms, timer_form
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.message_properties import change_properties
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.codec.records.record_layout import TRANSACTION_BITS, TRANSACTION_COMMIT
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.system_topics import refuses_sends
from broker_core.codec.wire.topic_name import (
    TRANSACTION_GIVEN_UP_TOPIC,
    TRANSACTION_HALF_TOPIC,
    topic_name_problem,
)
from broker_core.errors import InvalidArgument, MalformedRecord, RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode

HALF_QUEUE: Final = 0
OP_TAG: Final = "d"
OP_TEXT: Final = b"TAGS\x01d\x02"
# An op record that names no half, ignored by other brokers. Stored before a half message that would
# be the first record of a log: position 0 means "none".
NO_HALF: Final = b"-1"

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_SECONDS: Final = re.compile(r"[0-9]{1,9}")


class Half(NamedTuple):
    """A half message and the values of its properties."""

    record: MessageRecord
    group: str
    unique_key: str
    topic: str
    queue_id: int
    # Checks by another broker, which stores the half again at each check.
    check_times: int
    immunity_ms: int | None
    # Offset of the first half, when this is a copy that another broker stored.
    first_offset: int | None


def is_half(properties: Mapping[str, str], topic: str, reconsume_times: int, level: int) -> bool:
    """Whether a send opens a transaction.

    A committed message keeps TRAN_MSG, but a consumer that sends it to its retry topic opens none.
    """
    is_resend = reconsume_times > 0 and (level > 0 or topic.startswith("%"))
    return properties.get(names.TRANSACTION_PREPARED, "").lower() == "true" and not is_resend


def half_changes(
    properties: Mapping[str, str], group: str, topic: str, queue_id: int, unique_key: str
) -> dict[str, str]:
    """Properties that are added to a half message.

    Raises `RemoteError` when it names the group of another producer, `InvalidArgument` for an
    invalid one.
    """
    owner = properties.get(names.PRODUCER_GROUP, checked_group(group))
    if owner != group:
        # That group's producers would be asked, and could end this transaction.
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
    """Read a half message. Raises `MalformedRecord` for one that cannot be committed."""
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
    """The committed copy, for consumers or for the delay or timer topic first.

    The property text is unchanged, as in RocketMQ.
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
        form = timer_form(half.topic, half.queue_id, record.property_text, due_ms)
    elif level < 1 or level_max < 1:
        return copy
    else:
        form = delayed_form(half.topic, half.queue_id, record.property_text, level, level_max)
    return copy._replace(topic=form.topic, queue_id=form.queue_id, property_text=form.text)


def shortened(copy: MessageRecord) -> MessageRecord:
    """The same copy without broker-only properties, for a property text at its size limit.

    A record of another broker may fill the text completely; our checksum needs 20 bytes.
    """
    dropped = (names.TRANSACTION_ID, names.TRANSACTION_CHECK_TIMES, names.TRANSACTION_PREPARED)
    text = change_properties(copy.property_text, dict.fromkeys(dropped, ""))
    return copy._replace(property_text=text)


def given_up(record: MessageRecord) -> MessageRecord:
    """The copy of a given-up transaction, for an operator."""
    return record._replace(
        topic=TRANSACTION_GIVEN_UP_TOPIC,
        queue_id=0,
        prepared_transaction_offset=record.physical_offset,
    )


def half_position(prepared_offset: int) -> int | None:
    """Log position of the half message whose outcome has this PREPARED TRANSACTION OFFSET."""
    return prepared_offset if prepared_offset > 0 else None


def op_body(offset: int) -> bytes:
    """Body of an op record for one half. Without a comma, for brokers of 4.x."""
    return b"%d" % offset


def ended_offsets(record: MessageRecord) -> list[int]:
    """Half offsets of an op record: one, or several as brokers of 5.x write them."""
    if record.properties.get(names.TAGS) != OP_TAG:
        return []
    parts = record.body.decode("latin-1").split(",")
    return [int(part) for part in parts if _NUMBER.fullmatch(part)]


def check_request(half: Half, times: int, broker_name: str) -> RemotingCommand:
    """CHECK_TRANSACTION_STATE: the half message as it was sent, and its position."""
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
        # No room for the check count.
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
