"""Property text of a message <-> mapping, with the rules of the Java client and broker.

Text is `name 0x01 value 0x02` for each pair. Reading is tolerant: the last 0x02 may be missing,
pairs without a name or a value are dropped, a later pair of the same name wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.codec.records.record_layout import NAME_SEPARATOR, PAIR_SEPARATOR
from broker_core.errors import InvalidArgument

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
SHARDING_KEY: Final = "__SHARDINGKEY"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
CRC32: Final = "__CRC32#"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"

TIMER_PROPERTIES: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""Each of them asks for a delivery time."""

KEY_SEPARATOR: Final = " "
"""Between the parts of a KEYS value."""


def split_properties(text: bytes) -> dict[bytes, bytes]:
    """Pairs of a property text as raw bytes, in order of their first appearance."""
    pairs: dict[bytes, bytes] = {}
    for pair in text.split(PAIR_SEPARATOR):
        name, _, value = pair.partition(NAME_SEPARATOR)
        if name and value:
            pairs[name] = value
    return pairs


def decode_properties(text: bytes) -> dict[str, str]:
    """Pairs of a property text; bytes that are not UTF-8 become U+FFFD."""
    return {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, value in split_properties(text).items()
    }


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Property text of a mapping; pairs with an empty name or value are left out.

    Raises `InvalidArgument` when a name or value has a separator in it, which would turn one pair
    into others on the way back.
    """
    text = "".join(_pair_text(name, value) for name, value in properties.items())
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"properties are not encodable as UTF-8: {error.reason}") from None


def change_properties(text: bytes, changes: Mapping[str, str]) -> bytes:
    """The text with these pairs set, or left out where the value is empty.

    All other pairs stay byte for byte. Raises `InvalidArgument` as `encode_properties` does.
    """
    changed = {name.encode() for name in changes}
    kept = [
        b"%b\x01%b\x02" % pair for pair in split_properties(text).items() if pair[0] not in changed
    ]
    return b"".join(kept) + encode_properties(changes)


def _pair_text(name: object, value: object) -> str:
    if not isinstance(name, str) or not isinstance(value, str):
        raise InvalidArgument(f"property {name!r:.80} must be text with a text value")
    if not name or not value:
        return ""
    if "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
        raise InvalidArgument(f"property {name!r:.80} has a separator character in it")
    return f"{name}\x01{value}\x02"
