"""One message -> one record, pure Python: the twin of the native `encode_message`."""

from __future__ import annotations

from array import array

from broker_core.codec.column_batch import Buffer, ColumnBatch
from broker_core.codec.record_encode_loops import encode_batch

_NOWHERE = -2


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
        (body, array("q", (0, memoryview(body).nbytes)), 8), None, None,
        (properties, array("q", (0, memoryview(properties).nbytes)), 8),
        flag, sys_flag, born_timestamp, born_host, store_host,
        reconsume_times, prepared_offset, append_crc,
    )  # fmt: skip
    # -1 would ask the batch encoder for a template.
    place = position if position >= 0 else _NOWHERE
    taken, end = encode_batch(
        batch, 0, array("q", (queue_offset,)), store_timestamp, out, out_start, out_limit, place
    )
    return end if taken else 0
