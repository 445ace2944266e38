"""The records of a timer message: allowed times, waiting form, outcomes.

Pure. A timer message waits in `rmq_sys_wheel_timer`, queue 0; REAL_TOPIC and REAL_QID have its
destination, TIMER_OUT_MS its due time. Its outcome is one record that has the log position of the
waiting record, inverted, in PREPARED TRANSACTION OFFSET (see `delayed_message`): the delivered
copy, a recall, or the same message rolled because its record becomes too old.

RocketMQ rounds TIMER_OUT_MS down to seconds. Ours is exact to the millisecond and never a whole
second, so that the two can be told apart and none of RocketMQ's is delivered early.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.broker.scheduled.delayed_message import StoredForm, delivered
from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.message_properties import (
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_PROPERTIES,
    change_properties,
    encode_properties,
)
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.topic_name import TIMER_TOPIC
from broker_core.errors import MalformedRecord, RemoteError
from broker_core.protocol_codes import ResponseCode

TIMER_QUEUE: Final = 0
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DELETE_KEY: Final = "TIMER_DEL_UNIQKEY"
RECALL_TAG: Final = "_RECALL_TAG_"

# RocketMQ's precision.
PRECISION_MS: Final = 1_000

_ASKING_NAMES: Final = tuple(f"{name}\x01".encode() for name in TIMER_PROPERTIES)
_LONG: Final = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER: Final = re.compile(rb"[0-9]{1,18}")


class TimerRules(NamedTuple):
    """Limits of this broker for timer messages."""

    is_enabled: bool
    delay_max_ms: int

    def due_ms(self, properties: Mapping[str, str], now_ms: int) -> int | None:
        """The due time of a message; None for an ordinary message.

        Raises `RemoteError` for an impossible time.
        """
        if TIMER_OUT_MS in properties:
            # It has waited already: a consumer sends the message on with all its properties.
            return None
        asked = _asked(properties)
        if asked is None:
            return None
        name, text = asked
        if not self.is_enabled:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker takes no timer messages ({name}): set timerWheelEnable=true",
            )
        due_ms = _due_ms(name, text, now_ms)
        if due_ms <= now_ms:
            if TIMER_DELETE_KEY in properties:
                raise RemoteError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"{name} is {text[:40]}: a message whose time has come cannot be recalled",
                )
            return None
        if due_ms - now_ms > self.delay_max_ms:
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{name} is {text[:40]}: at most {self.delay_max_ms // 1000} s ahead "
                "(timerMaxDelaySec)",
            )
        return due_ms


def names_timer(texts: bytes | bytearray | memoryview) -> bool:
    """Whether one of several property texts sets a time."""
    found = bytes(texts)
    return b"TIMER_DE" in found and any(
        found.startswith(name) or b"\x02" + name in found for name in _ASKING_NAMES
    )


def out_ms(due_ms: int) -> int:
    """TIMER_OUT_MS of a message of ours."""
    return due_ms if due_ms % PRECISION_MS else due_ms + 1


def commit_due_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Due time of a committed message; None for now. It was validated when it was sent."""
    asked = None if TIMER_OUT_MS in properties else _asked(properties)
    try:
        due_ms = now_ms if asked is None else _due_ms(*asked, now_ms)
    except RemoteError:
        return None
    return due_ms if due_ms > now_ms else None


def timer_form(topic: str, queue_id: int, text: bytes, due_ms: int) -> StoredForm:
    """Waiting form of a message for `topic` with this property text."""
    changes = {
        TIMER_OUT_MS: str(out_ms(due_ms)),
        names.REAL_TOPIC: topic,
        names.REAL_QID: str(queue_id),
        TIMER_ROLL_TIMES: "",
    }
    return StoredForm(TIMER_TOPIC, TIMER_QUEUE, change_properties(text, changes))


def stored_due_ms(text: bytes) -> int | None:
    """Due time in the property text of a waiting message; None without one."""
    out = property_bytes(text, b"TIMER_OUT_MS\x01")
    if _NUMBER.fullmatch(out) is None:
        return None
    due_ms = int(out)
    if due_ms % PRECISION_MS:
        return due_ms
    # RocketMQ has rounded it down: wait for the end of that second.
    asked = property_bytes(text, b"TIMER_DELIVER_MS\x01")
    exact_ms = int(asked) if _NUMBER.fullmatch(asked) else 0
    return exact_ms if due_ms < exact_ms <= due_ms + PRECISION_MS else due_ms + PRECISION_MS


def property_bytes(text: bytes, start: bytes) -> bytes:
    """The value after `name 0x01` in a property text; empty without one."""
    at = text.find(start)
    while at > 0 and text[at - 1] != 2:
        at = text.find(start, at + 1)
    return b"" if at < 0 else text[at + len(start) :].partition(b"\x02")[0]


def wake_ms(due_ms: int, stored_ms: int, roll_after_ms: int) -> int:
    """When to handle a waiting message: when it is due, or when its record must be rolled."""
    return min(due_ms, stored_ms + roll_after_ms)


def is_recall(text: bytes) -> bool:
    """Whether a record of the timer topic is a recall."""
    return bool(property_bytes(text, b"TIMER_DEL_UNIQKEY\x01"))


def recalled_key(text: bytes) -> tuple[str, str]:
    """(topic, unique key) of the message that a recall names; brokers may put the topic first."""
    topic = property_bytes(text, b"REAL_TOPIC\x01").decode("utf-8", "replace")
    key = property_bytes(text, b"TIMER_DEL_UNIQKEY\x01").decode("utf-8", "replace")
    return topic, key.removeprefix(f"{topic}+")


def recall_text(topic: str, unique_key: str, due_ms: int) -> bytes:
    """Property text of a recall record, in RocketMQ's format."""
    return encode_properties(
        {
            names.TAGS: RECALL_TAG,
            TIMER_DELETE_KEY: unique_key,
            names.UNIQ_KEY: unique_key,
            TIMER_DELIVER_MS: str(due_ms),
            TIMER_OUT_MS: str(out_ms(due_ms)),
            names.REAL_TOPIC: topic,
            names.REAL_QID: "0",
        }
    )


def delivered_timer(record: MessageRecord) -> MessageRecord:
    """The copy for the destination; `MalformedRecord` without one."""
    copy = delivered(record)
    if copy.topic == TIMER_TOPIC:
        raise MalformedRecord(record.physical_offset, f"{TIMER_TOPIC} is not a topic to deliver to")
    return copy


def rolled_timer(record: MessageRecord) -> MessageRecord:
    """The rolled record: the same message again, which ends the old record."""
    times = property_bytes(record.property_text, b"TIMER_ROLL_TIMES\x01")
    count = int(times) + 1 if _NUMBER.fullmatch(times) else 1
    return record._replace(
        property_text=change_properties(record.property_text, {TIMER_ROLL_TIMES: str(count)}),
        prepared_transaction_offset=~record.physical_offset,
    )


def _asked(properties: Mapping[str, str]) -> tuple[str, str] | None:
    for name in TIMER_PROPERTIES:
        if name in properties:
            return name, properties[name]
    return None


def _due_ms(name: str, text: str, now_ms: int) -> int:
    if _LONG.fullmatch(text) is None or abs(int(text)) > I64_MAX:
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL, f"{name} is {text[:40]!r}: give a whole number"
        )
    number = int(text)
    if name == TIMER_DELIVER_MS:
        return number
    return now_ms + (number * 1000 if name == TIMER_DELAY_SEC else number)
