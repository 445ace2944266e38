"""`ColumnBatch`: messages as columns, the input of the batch encoder. Holds buffers, copies none.

A `Column` is `(data, offsets, width)` as Arrow's binary (width 4) and large_binary (width 8)
arrays keep it: row r is `data[offsets[r]:offsets[r + 1]]`, offsets are native-endian integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from broker_core.errors import InvalidArgument

# Anything with a C-contiguous buffer (bytes, memoryview, numpy array, Arrow buffer). The type of
# that protocol only has a name since Python 3.12.
Buffer: TypeAlias = Any
Column: TypeAlias = tuple[Buffer, Buffer, int]

TEMPLATE: Final = -1
"""Log position that makes `encode_batch` write templates: records without positions."""
QUEUE_PLACE: Final = Struct(">IH")
"""Queue id and topic size of one queue of a template run; the topic follows."""


def encode_places(queues: Iterable[tuple[bytes, int]]) -> bytes:
    """The queues of a template run as `inspect_run` and `relocate_run` take them."""
    return b"".join(QUEUE_PLACE.pack(queue_id, len(topic)) + topic for topic, queue_id in queues)


def check_queues(queues: Any) -> None:
    """Raise `InvalidArgument` unless this is a tuple of (topic bytes, queue id)."""
    if not isinstance(queues, tuple) or not all(map(_is_queue, queues)):
        raise InvalidArgument("queues must be a tuple of (topic bytes, queue id)")


def _is_queue(pair: Any) -> bool:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    topic, queue_id = pair
    return isinstance(topic, bytes) and type(queue_id) is int and 0 <= queue_id < 1 << 31


class ColumnBatch(NamedTuple):
    """`count` messages for the `queues` named; the field order is part of the codec contract."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    queues: tuple[tuple[bytes, int], ...]
    """The distinct (topic, queue id) pairs, at least one."""
    queue_index: Buffer | None
    """int32 per row into `queues`; None sends every row to the first."""
    body: Column
    tags: Column | None = None
    keys: Column | None = None
    properties: Column | None = None
    """Encoded text `name 0x01 value 0x02 ...`; the last 0x02 may be missing."""
    flag: int = 0
    sys_flag: int = 0
    """The two IPv6 host bits are set by the encoder from the host lengths."""
    born_timestamp: Any = 0
    """One int for all rows, or an int64 buffer with one value per row."""
    born_host: bytes = b""
    store_host: bytes = b""
    """Hosts are 8 (IPv4) or 20 (IPv6) bytes: address and i32 port."""
    reconsume_times: int = 0
    prepared_offset: int = 0
    append_crc: bool = True
    """End the properties with the whole-record checksum property."""


def check_batch(batch: Any) -> None:
    """Raise `InvalidArgument` for the first field of a wrong type; the encoder checks sizes."""
    if not isinstance(batch, ColumnBatch):
        raise InvalidArgument(f"a batch must be a ColumnBatch, not {type(batch).__name__}")
    check_queues(batch.queues)
    for name in ("count", "flag", "sys_flag", "reconsume_times", "prepared_offset"):
        if type(getattr(batch, name)) is not int:
            raise InvalidArgument(f"ColumnBatch.{name} must be int")
    for name in ("born_host", "store_host"):
        if not isinstance(getattr(batch, name), bytes):
            raise InvalidArgument(f"ColumnBatch.{name} must be bytes")
    for name in ("body", "tags", "keys", "properties"):
        column = getattr(batch, name)
        if column is None and name != "body":
            continue
        if not isinstance(column, tuple) or len(column) != 3 or type(column[2]) is not int:
            raise InvalidArgument(f"ColumnBatch.{name} must be (data, offsets, width)")
