"""Columns -> the body of a batch send, pure Python: the twin of the native `join_client_batch`."""

from __future__ import annotations

import struct
from typing import Final

from broker_core.codec import record_reasons as reasons
from broker_core.codec.batch_columns import open_batch
from broker_core.codec.column_batch import ColumnBatch
from broker_core.codec.record_encode_rows import read_row

_HEAD: Final = struct.Struct(">iiiii")
_TEXT_SIZE: Final = struct.Struct(">h")
_ITEM_SIZE_MIN: Final = _HEAD.size + _TEXT_SIZE.size


def join_client_batch(
    batch: ColumnBatch, first_row: int, queue: int, size_max: int
) -> tuple[int, int, bytes]:
    """First row not looked at, how many rows are in the body, and the body.

    Takes the rows of one queue of the batch, or all with -1, from `first_row` on until the body
    would be longer than `size_max`, but at least one. Raises `MalformedBatch` as the encoder does.
    """
    opened = open_batch(batch)
    if not 0 <= first_row <= batch.count:
        raise ValueError(reasons.BAD_FIRST_ROW)
    out = bytearray()
    count = 0
    for number in range(first_row, batch.count):
        row = read_row(opened, number)
        if 0 <= queue != row.queue:
            continue
        size = _ITEM_SIZE_MIN + len(row.body) + len(row.text)
        if count and len(out) + size > size_max:
            return number, count, bytes(out)
        out += _HEAD.pack(size, 0, 0, batch.flag, len(row.body))
        out += row.body
        out += _TEXT_SIZE.pack(len(row.text))
        out += row.text
        count += 1
    return batch.count, count, bytes(out)
