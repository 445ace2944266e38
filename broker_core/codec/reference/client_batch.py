"""The body of a batch send: columns -> body, body -> columns, and the ids of its records.

    size i32 | magic i32 | crc i32 | flag i32 | body length i32, body | text length i16, text

The twin of `client_batch.c`.
"""

from __future__ import annotations

from array import array
from typing import Final

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import Buffer, ColumnBatch
from broker_core.codec.records.record_layout import (
    BATCH_ITEM,
    BATCH_ITEM_SIZE_MIN,
    I16,
    I32,
    IPV4_HOST_SIZE,
    IPV6_HOST_SIZE,
    RECORD_SIZE_MIN,
)
from broker_core.codec.reference.batch import open_batch, read_row
from broker_core.errors import MalformedBatch

__all__ = ["join_client_batch", "list_message_ids", "split_client_batch"]

# All properties that set a time begin like this.
_TIMER_NAME: Final = b"TIMER_DE"

ClientBatch = tuple[int, bytes, bytes, bytes, bytes, bytes, bool]


def split_client_batch(data: Buffer, suffix: Buffer) -> ClientBatch:
    """Count, flags (int32 each), bodies, their offsets (int64), property texts, their offsets.

    Last, whether the beginning of a timer property's name is in a text. Every text gets `suffix` at
    its end. Raises `MalformedBatch` for the first bad item.
    """
    view, tail = memoryview(data).cast("B"), bytes(suffix)
    flags, body_offsets, text_offsets = array("i"), array("q", (0,)), array("q", (0,))
    bodies, texts = bytearray(), bytearray()
    names_timer = False
    start = 0
    while start < len(view):
        size, flag, body_size = _open_item(view, start, len(flags))
        body_at = start + BATCH_ITEM.size
        text = view[body_at + body_size + I16.size : start + size]
        bodies += view[body_at : body_at + body_size]
        texts += text
        names_timer = names_timer or _TIMER_NAME in bytes(text)
        if tail:
            texts += b"\x02" + tail if len(text) and text[-1] != 2 else tail
        flags.append(flag)
        body_offsets.append(len(bodies))
        text_offsets.append(len(texts))
        start += size
    return (
        len(flags),
        flags.tobytes(),
        bytes(bodies),
        body_offsets.tobytes(),
        bytes(texts),
        text_offsets.tobytes(),
        names_timer,
    )


def _open_item(view: memoryview, start: int, row: int) -> tuple[int, int, int]:
    left = len(view) - start
    if left < 8:
        raise MalformedBatch(row, reasons.HEADER_CUT)
    (size,) = I32.unpack_from(view, start)
    if size < BATCH_ITEM_SIZE_MIN:
        raise MalformedBatch(row, reasons.SIZE_TOO_SMALL)
    if size > left:
        raise MalformedBatch(row, reasons.SIZE_PAST_LIMIT)
    _, _, _, flag, body_size = BATCH_ITEM.unpack_from(view, start)
    if body_size < 0:
        raise MalformedBatch(row, reasons.NEGATIVE_BODY)
    if body_size > size - BATCH_ITEM_SIZE_MIN:
        raise MalformedBatch(row, reasons.LENGTHS_DISAGREE)
    (text_size,) = I16.unpack_from(view, start + BATCH_ITEM.size + body_size)
    if text_size < 0:
        raise MalformedBatch(row, reasons.NEGATIVE_PROPERTIES)
    if size != BATCH_ITEM_SIZE_MIN + body_size + text_size:
        raise MalformedBatch(row, reasons.LENGTHS_DISAGREE)
    return size, flag, body_size


def list_message_ids(data: Buffer, start: int, count: int, host: Buffer, position: int) -> str:
    """Offset ids, separated by commas, of `count` records that begin at `data[start]`."""
    view, address = memoryview(data).cast("B"), bytes(host)
    if len(address) not in (IPV4_HOST_SIZE, IPV6_HOST_SIZE):
        raise ValueError(reasons.BAD_HOST)
    if not 0 <= start <= len(view) or not 1 <= count <= len(view):
        raise ValueError(reasons.BAD_RANGE)
    prefix = address.hex().upper()
    ids = []
    for _ in range(count):
        size = I32.unpack_from(view, start)[0] if start + 4 <= len(view) else 0
        if size < RECORD_SIZE_MIN or size > len(view) - start:
            raise ValueError(reasons.BAD_RANGE)
        ids.append(f"{prefix}{position & 0xFFFFFFFFFFFFFFFF:016X}")
        start += size
        position += size
    return ",".join(ids)


def join_client_batch(
    batch: ColumnBatch, first_row: int, queue: int, size_max: int
) -> tuple[int, int, bytes]:
    """First row not visited, number of rows in the body, and the body.

    The body has the rows of one queue of the batch (-1: all) from `first_row` on, as many as fit
    into `size_max` but at least one. Raises `MalformedBatch` as the encoder does.
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
        size = BATCH_ITEM_SIZE_MIN + len(row.body) + len(row.text)
        if count and len(out) + size > size_max:
            return number, count, bytes(out)
        out += BATCH_ITEM.pack(size, 0, 0, batch.flag, len(row.body))
        out += row.body
        out += I16.pack(len(row.text))
        out += row.text
        count += 1
    return batch.count, count, bytes(out)
