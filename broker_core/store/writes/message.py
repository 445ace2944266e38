"""A message as the caller passes it, and its conversion to a one-row column batch."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from broker_core.codec.records.column_batch import Column, ColumnBatch
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.message_properties import KEYS, TAGS, WAIT, encode_properties
from broker_core.errors import InvalidArgument

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class Message(NamedTuple):
    """The content of a message; the store adds offsets, store time and checksums."""

    topic: str
    body: bytes
    queue_id: int = 0
    tags: str = ""
    keys: str = ""
    properties: Mapping[str, str] = NO_PROPERTIES
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: tuple[str, int] | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def wants_wait(self) -> bool:
        """False when the property WAIT is "false": the sender does not wait for the disk."""
        return not self.properties or self.properties.get(WAIT, "true").lower() != "false"


_KINDS: dict[str, Any] = {
    "topic": str,
    "body": (bytes, bytearray, memoryview),
    "queue_id": int,
    "tags": str,
    "keys": str,
    "properties": Mapping,
    "flag": int,
    "sys_flag": int,
    "born_timestamp": (int, type(None)),
    "born_host": (tuple, type(None)),
    "reconsume_times": int,
    "prepared_transaction_offset": int,
}


def check_message(message: Message) -> None:
    """Raise `InvalidArgument` for the first field of a wrong type, size or content."""
    if not isinstance(message, Message):
        raise InvalidArgument(f"give a Message, not {type(message).__name__}")
    for name, kind in _KINDS.items():
        value = getattr(message, name)
        if not isinstance(value, kind) or isinstance(value, bool):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            wanted = " or ".join(one.__name__ for one in kinds)
            raise InvalidArgument(f"Message.{name} must be {wanted}, not {value!r:.80}")
    for name in ("queue_id", "reconsume_times"):
        if not 0 <= getattr(message, name) < 1 << 31:
            raise InvalidArgument(f"Message.{name}={getattr(message, name)} is out of range")
    for name in ("tags", "keys"):
        if "\x01" in getattr(message, name) or "\x02" in getattr(message, name):
            raise InvalidArgument(f"Message.{name} must not contain \\x01 or \\x02")
    for name in (TAGS, KEYS):
        if name in message.properties:
            raise InvalidArgument(f"give {name} as Message.{name.lower()}, not as a property")
    _check_host(message.born_host)


def _check_host(host: Any) -> None:
    if host is not None and (len(host) != 2 or [type(part) for part in host] != [str, int]):
        raise InvalidArgument(f"Message.born_host must be (address, port), not {host!r:.80}")


def one_row(data: bytes | memoryview) -> Column:
    """A column with a single value."""
    return data, array("q", (0, len(data))), 8


def encode_topic(topic: str) -> bytes:
    """UTF-8 of a topic name; `InvalidArgument` when it cannot be encoded."""
    try:
        return topic.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"topic cannot be encoded: {error.reason}") from error


def message_batch(
    message: Message, queue: tuple[bytes, int], store_host: bytes, now_ms: int, append_crc: bool
) -> ColumnBatch:
    """The message as a batch of one row; `InvalidArgument` for text that cannot be encoded."""
    (_, body, _, tags, keys, properties, flag, sys_flag, born, host, reconsumed, prepared) = message
    tags_column = keys_column = properties_column = None
    try:
        if tags:
            tags_column = one_row(tags.encode())
        if keys:
            keys_column = one_row(keys.encode())
    except (UnicodeEncodeError, AttributeError) as error:
        raise InvalidArgument(f"tags or keys cannot be encoded: {error}") from error
    if properties:
        properties_column = one_row(encode_properties(properties))
    return ColumnBatch(
        1,
        (queue,),
        None,
        one_row(bytes(body)),
        tags_column,
        keys_column,
        properties_column,
        flag,
        sys_flag,
        now_ms if born is None else born,
        store_host if host is None else encode_host(host),
        store_host,
        reconsumed,
        prepared,
        append_crc,
    )
