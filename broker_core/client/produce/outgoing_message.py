"""A message to send, and the checks before it is sent.

Properties that RocketMQ itself uses are fields or set by the client. They are rejected in
`properties`, because a broker would interpret them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from broker_core.codec.json.fields import I32_MAX
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.record_layout import PROPERTY_TEXT_MAX
from broker_core.errors import InvalidArgument, MessageTooLarge

_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
_DELAY_LEVEL_MAX: Final = 1_000
# RocketMQ's property names for a delivery time are accepted, too.
_TIMER_PROPERTIES: Final = frozenset(names.TIMER_PROPERTIES)

# Set by this client from other fields, by brokers or by consumers.
RESERVED_PROPERTIES: Final = frozenset(
    {
        names.CRC32,
        names.DELAY,
        names.INNER_MULTI_DISPATCH,
        names.INNER_MULTI_QUEUE_OFFSET,
        names.INSTANCE_ID,
        names.KEYS,
        names.MAX_OFFSET,
        names.MAX_RECONSUME_TIMES,
        names.MIN_OFFSET,
        names.MSG_REGION,
        names.ORIGIN_MESSAGE_ID,
        names.PRODUCER_GROUP,
        names.REAL_QID,
        names.REAL_TOPIC,
        names.RECONSUME_TIME,
        names.RETRY_TOPIC,
        names.SHARDING_KEY,
        names.TAGS,
        names.TRACE_ON,
        names.TRANSACTION_CHECK_TIMES,
        names.TRANSACTION_ID,
        names.TRANSACTION_PREPARED,
        names.TRANSACTION_PREPARED_QUEUE_OFFSET,
        names.UNIQ_KEY,
        names.WAIT,
        "1ST_POP_TIME",
        "ARRIVE_TIME",
        "BORN_TIMESTAMP",
        "CLUSTER",
        "CONSUME_START_TIME",
        "CORRECTION_FLAG",
        "DLQ_ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_TOPIC",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "INNER_BASE",
        "INNER_NUM",
        "MQ2_FLAG",
        "POP_CK",
        "POP_CK_OFFSET",
        "PROPERTY_FORWARD_QUEUE_ID",
        "PUSH_REPLY_TIME",
        "REDIRECT",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL",
        "TIMER_DEQUEUE_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_OUT_MS",
        "TIMER_ROLL_TIMES",
        "TRANSFER_FLAG",
        "__BORNHOST",
    }
)


class OutgoingMessage(NamedTuple):
    """A message to send.

    `keys` are separated by spaces. `delay_level` 1 to 18 is 1 s to 2 h. `unique_id` replaces the
    id that the producer generates. `wait_store_ok=False` asks for an answer before the flush.
    Consumers get the message at `deliver_at_ms` (epoch), or `delay_ms` after it was stored; this
    needs our broker or Apache 5.x. The result of such a send has a `recall_handle`.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: str = ""
    properties: Mapping[str, str] = _NO_PROPERTIES
    delay_level: int = 0
    flag: int = 0
    sharding_key: str | None = None
    unique_id: str = ""
    wait_store_ok: bool = True
    deliver_at_ms: int | None = None
    delay_ms: int | None = None

    @property
    def has_time(self) -> bool:
        """Whether it has a delivery time."""
        if self.deliver_at_ms is not None or self.delay_ms is not None:
            return True
        return not _TIMER_PROPERTIES.isdisjoint(self.properties) if self.properties else False


def property_text(message: OutgoingMessage, unique_id: str) -> str:
    """The property text of a message; raises `InvalidArgument` or `MessageTooLarge`."""
    wait = "true" if message.wait_store_ok else "false"
    text = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01{wait}\x02"
    pairs = 2
    if message.tags:
        text += f"TAGS\x01{_text('tags', message.tags)}\x02"
        pairs += 1
    if message.keys:
        text += f"KEYS\x01{_text('keys', message.keys)}\x02"
        pairs += 1
    if message.delay_level:
        text += f"DELAY\x01{_delay_level(message.delay_level)}\x02"
        pairs += 1
    if message.sharding_key:
        text += f"__SHARDINGKEY\x01{_text('sharding_key', message.sharding_key)}\x02"
        pairs += 1
    if message.deliver_at_ms is not None or message.delay_ms is not None:
        text += _time_pair(message)
        pairs += 1
    if message.properties:
        text += "".join(_user_pair(*pair) for pair in message.properties.items())
        pairs += len(message.properties)
    # One count for all: a separator inside a name or a value would make other pairs of them.
    if text.count("\x01") != pairs or text.count("\x02") != pairs:
        raise InvalidArgument(_separator_text(message))
    if not text.isascii() or len(text) > PROPERTY_TEXT_MAX:
        _check_size(text)
    return text


def check_flag(flag: int) -> int:
    """The user flag, if it fits its field."""
    if type(flag) is not int or not -I32_MAX - 1 <= flag <= I32_MAX:
        raise InvalidArgument(f"flag {flag!r:.40} is not a whole number of 32 bits")
    return flag


def body_bytes(body: object) -> bytes:
    """A copy of a body that is not bytes but like bytes."""
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if isinstance(body, bytes):
        return body
    kind = type(body).__name__
    hint = "; encode the text first" if isinstance(body, str) else ""
    raise InvalidArgument(f"a body is bytes, not {kind}{hint}")


def _text(name: str, value: object) -> str:
    if type(value) is not str:
        raise InvalidArgument(f"{name} must be a text, not {type(value).__name__}")
    return value


def _delay_level(level: object) -> int:
    if type(level) is not int or not 0 <= level <= _DELAY_LEVEL_MAX:
        raise InvalidArgument(
            f"delay_level {level!r:.40} is not a number from 0 to {_DELAY_LEVEL_MAX}; brokers have"
            " 18 levels unless configured otherwise"
        )
    return level


def _time_pair(message: OutgoingMessage) -> str:
    if message.delay_level or (message.deliver_at_ms is not None and message.delay_ms is not None):
        raise InvalidArgument("give one of delay_level, deliver_at_ms and delay_ms")
    if message.deliver_at_ms is not None:
        return f"TIMER_DELIVER_MS\x01{_time('deliver_at_ms', message.deliver_at_ms)}\x02"
    return f"TIMER_DELAY_MS\x01{_time('delay_ms', message.delay_ms)}\x02"


def _time(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise InvalidArgument(f"{name} {value!r:.40} is not a number of milliseconds")
    return value


def _user_pair(name: object, value: object) -> str:
    if type(name) is not str or type(value) is not str:
        raise InvalidArgument(f"property {name!r:.80} must be text with a text value")
    if not name or not value:
        raise InvalidArgument(f"property {name!r:.80}: RocketMQ drops empty names and values")
    if name in RESERVED_PROPERTIES:
        raise InvalidArgument(f"property {name} belongs to RocketMQ; there may be a field for it")
    return f"{name}\x01{value}\x02"


def _separator_text(message: OutgoingMessage) -> str:
    for name, value in (
        ("tags", message.tags),
        ("keys", message.keys),
        ("sharding_key", message.sharding_key or ""),
        ("unique_id", message.unique_id),
        *message.properties.items(),
    ):
        if not {"\x01", "\x02"}.isdisjoint(name + value):
            return f"{name!r:.80} has a separator character (0x01 or 0x02) in it"
    return "a property has a separator character (0x01 or 0x02) in it"


def _check_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"properties are not encodable as UTF-8: {error.reason}") from None
    if size > PROPERTY_TEXT_MAX:
        raise MessageTooLarge(
            f"tags, keys and properties take {size} bytes, at most {PROPERTY_TEXT_MAX} fit"
        )
