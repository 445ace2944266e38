"""Row by row encoding of a `ColumnBatch`: for batches too small to pay for numpy's set-up.

Same checks in the same order as `batch_columns.plan_rows`, so either path may take any batch.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from broker_core.codec import record_reasons as reasons
from broker_core.codec.batch_columns import Int64s, OpenBatch, OpenColumn
from broker_core.codec.record_layout import (
    BLANK_RESERVE,
    CRC_MASK,
    CRC_TAIL_SIZE,
    HEADERS,
    I16,
    PROPERTY_TEXT_MAX,
    SIZE_MAX,
    crc_tail,
    looks_like_crc_tail,
)
from broker_core.errors import MalformedBatch


class Row(NamedTuple):
    """One good row."""

    queue: int
    body: memoryview
    text: bytes
    """Property text without the checksum property."""
    size: int
    """Of the whole record."""


def read_row(opened: OpenBatch, row: int) -> Row:
    """Check and collect one row; raises `MalformedBatch` with its first fault."""
    queue = 0
    if opened.queue_index is not None:
        queue = int(opened.queue_index[row])
        if not 0 <= queue < len(opened.queues):
            raise MalformedBatch(row, reasons.BAD_QUEUE_INDEX)
    body = _value(opened.body, row)
    tags = b"" if opened.tags is None else _value(opened.tags, row).tobytes()
    keys = b"" if opened.keys is None else _value(opened.keys, row).tobytes()
    text = b"" if opened.properties is None else _value(opened.properties, row).tobytes()
    if b"\x01" in tags or b"\x02" in tags:
        raise MalformedBatch(row, reasons.TAGS_SEPARATOR)
    if b"\x01" in keys or b"\x02" in keys:
        raise MalformedBatch(row, reasons.KEYS_SEPARATOR)
    if text and text[-1] != 2:
        text += b"\x02"
    if keys:
        text = b"KEYS\x01%b\x02%b" % (keys, text)
    if tags:
        text = b"TAGS\x01%b\x02%b" % (tags, text)
    text_size = len(text)
    if opened.batch.append_crc:
        text_size += CRC_TAIL_SIZE
    elif looks_like_crc_tail(text[-CRC_TAIL_SIZE:]):
        raise MalformedBatch(row, reasons.PROPERTIES_UNSAFE)
    if text_size > PROPERTY_TEXT_MAX:
        raise MalformedBatch(row, reasons.PROPERTIES_TOO_LONG)
    fixed = HEADERS[opened.hosts].size + len(opened.queues[queue].topic_field) + I16.size
    size = fixed + len(body) + text_size
    if size > SIZE_MAX:
        raise MalformedBatch(row, reasons.RECORD_TOO_LONG)
    return Row(queue, body, text, size)


def _value(column: OpenColumn, row: int) -> memoryview:
    start, end = int(column.offsets[row]), int(column.offsets[row + 1])
    if not 0 <= start <= end <= len(column.data):
        raise MalformedBatch(row, reasons.BAD_OFFSETS)
    return column.data[start:end]


def encode_rows(
    opened: OpenBatch,
    first_row: int,
    next_offsets: Int64s,
    store_timestamp: int,
    out: memoryview,
    out_start: int,
    out_limit: int,
    position: int,
) -> tuple[int, int]:
    """`encode_batch` for a batch that is open and arguments that are checked."""
    batch, header = opened.batch, HEADERS[opened.hosts]
    cursor = out_start
    for number in range(first_row, batch.count):
        row = read_row(opened, number)
        end = cursor + row.size
        if end + BLANK_RESERVE > out_limit:
            return number, cursor
        queue_offset = 0
        if opened.counts_offsets:
            queue_offset = int(next_offsets[row.queue])
            next_offsets[row.queue] = queue_offset + 1
        born = batch.born_timestamp
        if opened.born_timestamps is not None:
            born = int(opened.born_timestamps[number])
        queue = opened.queues[row.queue]
        physical_offset = row.queue if position < 0 else position + cursor - out_start
        text_size = len(row.text) + (CRC_TAIL_SIZE if batch.append_crc else 0)
        parts = (
            header.pack(
                row.size, queue.magic, crc32(row.body) & CRC_MASK, queue.queue_id, batch.flag,
                queue_offset, physical_offset, opened.sys_flag, born, batch.born_host,
                store_timestamp, batch.store_host, batch.reconsume_times, batch.prepared_offset,
                len(row.body),
            ),
            row.body, queue.topic_field, I16.pack(text_size), row.text,
        )  # fmt: skip
        record = b"".join(parts)
        if batch.append_crc:
            record += crc_tail(crc32(record) & CRC_MASK)
        out[cursor:end] = record
        cursor = end
    return batch.count, cursor
