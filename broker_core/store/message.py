"""One message as a caller gives it, and its way into a one-row column batch."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Mapping
from typing import Any

from broker_core.codec.column_batch import Column, ColumnBatch
from broker_core.codec.host_address import encode_host
from broker_core.codec.message_properties import KEYS, TAGS, WAIT, encode_properties
from broker_core.errors import InvalidArgument


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """What is stored; everything else (offsets, store time, checksums) the store adds."""

    topic: str
    body: bytes
    queue_id: int = 0
    tags: str = ""
    keys: str = ""
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: tuple[str, int] | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool):
                wanted = getattr(kind, "__name__", "bytes-like")
                raise InvalidArgument(f"Message.{name} must be {wanted}, not {value!r:.80}")
        for name in ("queue_id", "reconsume_times"):
            if not 0 <= getattr(self, name) < 1 << 31:
                raise InvalidArgument(f"Message.{name}={getattr(self, name)} is out of range")
        for name in ("tags", "keys"):
            if "\x01" in getattr(self, name) or "\x02" in getattr(self, name):
                raise InvalidArgument(f"Message.{name} must not contain \\x01 or \\x02")
        for name in (TAGS, KEYS):
            if name in self.properties:
                raise InvalidArgument(f"give {name} as Message.{name.lower()}, not as a property")

    @property
    def wants_wait(self) -> bool:
        """False when property WAIT says that the sender does not wait for the disk."""
        return self.properties.get(WAIT, "true").lower() != "false"


_TYPES: dict[str, Any] = {
    "topic": str,
    "body": (bytes, bytearray, memoryview),
    "queue_id": int,
    "tags": str,
    "keys": str,
    "properties": Mapping,
    "flag": int,
    "sys_flag": int,
    "reconsume_times": int,
    "prepared_transaction_offset": int,
}


def one_row(data: bytes) -> Column:
    """A column with a single value."""
    return data, array("q", (0, len(data))), 8


def message_batch(
    message: Message, store_host: bytes, now_ms: int, *, append_crc: bool
) -> ColumnBatch:
    """The message as a batch of one row; `InvalidArgument` for text that cannot be stored."""
    try:
        topic = message.topic.encode("utf-8")
        tags = message.tags.encode("utf-8")
        keys = message.keys.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"topic, tags or keys cannot be encoded: {error.reason}") from error
    properties = encode_properties(message.properties) if message.properties else b""
    host = store_host if message.born_host is None else encode_host(message.born_host)
    born = now_ms if message.born_timestamp is None else message.born_timestamp
    return ColumnBatch(
        count=1,
        queues=((topic, message.queue_id),),
        queue_index=None,
        body=one_row(bytes(message.body)),
        tags=one_row(tags) if tags else None,
        keys=one_row(keys) if keys else None,
        properties=one_row(properties) if properties else None,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=born,
        born_host=host,
        store_host=store_host,
        reconsume_times=message.reconsume_times,
        prepared_offset=message.prepared_transaction_offset,
        append_crc=append_crc,
    )
