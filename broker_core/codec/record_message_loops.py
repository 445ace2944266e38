"""One message -> one record, pure Python: twins of the native `encode_message`, `encode_put`."""

from __future__ import annotations

from array import array
from types import MappingProxyType
from typing import Any

from broker_core.codec.column_batch import Buffer, Column, ColumnBatch
from broker_core.codec.record_encode_loops import encode_batch
from broker_core.errors import MalformedBatch

_NOWHERE = -2
# Set for both transaction types that take no queue offset.
_PREPARED_OR_ROLLBACK = 0x04


def encode_message(
    out: Buffer,
    out_start: int,
    out_limit: int,
    position: int,
    store_timestamp: int,
    queue_offset: int,
    topic: bytes,
    queue_id: int,
    body: Buffer,
    properties: Buffer,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    prepared_offset: int,
    append_crc: bool,
    /,
) -> int:
    """Write the record if it fits as `encode_batch` would; its end in `out`, or 0 if it does not.

    `properties` is the whole property text, tags and keys included.
    """
    if not isinstance(born_timestamp, int):
        raise TypeError("born_timestamp must be an integer")
    batch = ColumnBatch(
        1, ((topic, queue_id),), None,
        _one(body), None, None, _one(properties),
        flag, sys_flag, born_timestamp, born_host, store_host,
        reconsume_times, prepared_offset, append_crc,
    )  # fmt: skip
    # -1 would ask the batch encoder for a template.
    place = position if position >= 0 else _NOWHERE
    taken, end = encode_batch(
        batch, 0, array("q", (queue_offset,)), store_timestamp, out, out_start, out_limit, place
    )
    return end if taken else 0


def encode_put(
    message: tuple[Any, ...],
    text: Buffer,
    body_max: int,
    out: Buffer,
    out_start: int,
    out_limit: int,
    position: int,
    store_timestamp: int,
    queue_offset: int,
    topic: bytes,
    store_host: bytes,
    now_ms: int,
    append_crc: bool,
    /,
) -> int:
    """Write the record of a `store.Message` if it fits; its end in `out`.

    0 if it does not, or if any field is not exactly of its type or not as it should be: nothing is
    written then. `text` is that of the properties, without tags and keys.
    """
    (name, body, queue_id, tags, keys, properties, flag, sys_flag, born, host, again, prepared) = (
        message
    )
    if (
        not (type(name) is type(tags) is type(keys) is str)
        or not (type(queue_id) is type(flag) is type(sys_flag) is type(again) is type(prepared))
        or type(flag) is not int
        or type(body) is not bytes
        or len(body) > body_max
        or type(properties) not in (dict, MappingProxyType)
        or host is not None
        or (born is not None and type(born) is not int)
        or sys_flag & _PREPARED_OR_ROLLBACK
        or again < 0
    ):
        return 0
    try:
        batch = ColumnBatch(
            1, ((topic, queue_id),), None, _one(body), _one(tags.encode()), _one(keys.encode()),
            _one(text), flag, sys_flag, now_ms if born is None else born, store_host, store_host,
            again, prepared, append_crc,
        )  # fmt: skip
        place = position if position >= 0 else _NOWHERE
        offsets = array("q", (queue_offset,))
        taken, end = encode_batch(
            batch, 0, offsets, store_timestamp, out, out_start, out_limit, place
        )
    except (MalformedBatch, UnicodeEncodeError):
        return 0
    return end if taken else 0


def _one(value: Buffer) -> Column:
    return value, array("q", (0, memoryview(value).nbytes)), 8
