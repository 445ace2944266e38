"""A `ColumnBatch` opened for encoding: its faults, its constants and its rows. As in `batch.c`.

Faults of the whole batch are found when it is opened, faults of rows by `plan_rows` (many rows) or
`read_row` (one row), which make the same checks in the same order. Rows are checked strictly in
order: nothing behind the first bad row matters.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import Buffer, Column, ColumnBatch
from broker_core.codec.records.record_layout import (
    CRC_TAIL_SIZE,
    HEADERS,
    HOST_BITS,
    I16,
    IPV4_HOST_SIZE,
    IPV6_HOST_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTY_TEXT_MAX,
    RECORD_SIZE_MIN,
    SIZE_MAX,
    TOPIC_MAX,
    TOPIC_V1_MAX,
    looks_like_crc_tail,
    takes_queue_offset,
)
from broker_core.codec.records.record_parse import as_view, is_topic_text
from broker_core.errors import MalformedBatch

Int64s: TypeAlias = npt.NDArray[np.int64]
_NAMED_PAIR_SIZE = len(b"TAGS\x01\x02")


class OpenColumn(NamedTuple):
    """One column: its bytes and `count + 1` offsets."""

    data: memoryview
    offsets: npt.NDArray[Any]

    def bounds(self, first: int, last: int) -> tuple[Int64s, Int64s]:
        """Starts and ends of rows `first..last-1`."""
        part = self.offsets[first : last + 1].astype(np.int64)
        return part[:-1], part[1:]


class OpenQueue(NamedTuple):
    """One destination: the constants of its records."""

    queue_id: int
    magic: int
    topic_field: bytes
    """TOPICLEN and TOPIC as they are in the record."""


class OpenBatch(NamedTuple):
    """A batch whose batch-wide limits hold."""

    batch: ColumnBatch
    queues: tuple[OpenQueue, ...]
    queue_index: npt.NDArray[np.int32] | None
    body: OpenColumn
    tags: OpenColumn | None
    keys: OpenColumn | None
    properties: OpenColumn | None
    born_timestamps: Int64s | None
    sys_flag: int
    hosts: int
    """Index into `record_layout.HEADERS`."""
    counts_offsets: bool
    """False for prepared and rollback types, which take no queue offset."""


class RowPlan(NamedTuple):
    """Rows `first..stop-1` are good; if `reason` is set, row `stop` is bad."""

    stop: int
    reason: str
    sizes: Int64s


def open_batch(batch: ColumnBatch) -> OpenBatch:
    """Check everything that concerns the whole batch; raises `MalformedBatch` with row -1."""
    if not isinstance(batch, ColumnBatch):
        raise TypeError("batch must be a ColumnBatch")
    if batch.count < 0:
        raise MalformedBatch(-1, reasons.BAD_COUNT)
    if not batch.queues:
        raise MalformedBatch(-1, reasons.NO_QUEUES)
    queues = tuple(_open_queue(topic, queue_id) for topic, queue_id in batch.queues)
    for host in (batch.born_host, batch.store_host):
        if len(host) not in (IPV4_HOST_SIZE, IPV6_HOST_SIZE):
            raise MalformedBatch(-1, reasons.BAD_HOST)
    hosts = (len(batch.born_host) == IPV6_HOST_SIZE) | (
        len(batch.store_host) == IPV6_HOST_SIZE
    ) << 1
    born_scalar = batch.born_timestamp if isinstance(batch.born_timestamp, int) else 0
    _check_numbers(batch, born_scalar)
    body = _open_column(batch.body, batch.count)
    tags, keys, properties = (
        None if column is None else _open_column(column, batch.count)
        for column in (batch.tags, batch.keys, batch.properties)
    )
    queue_index = born_timestamps = None
    if batch.queue_index is not None:
        queue_index = _open_integers(batch.queue_index, np.dtype(np.int32), batch.count)
    if not isinstance(batch.born_timestamp, int):
        born_timestamps = _open_integers(batch.born_timestamp, np.dtype(np.int64), batch.count)
    sys_flag = batch.sys_flag & ~HOST_BITS | hosts << 4
    return OpenBatch(
        batch, queues, queue_index, body, tags, keys, properties, born_timestamps,
        sys_flag, hosts, takes_queue_offset(sys_flag),
    )  # fmt: skip


def _open_queue(topic: bytes, queue_id: int) -> OpenQueue:
    if not isinstance(topic, bytes):
        raise TypeError("topic must be bytes")
    if not 1 <= len(topic) <= TOPIC_MAX:
        raise MalformedBatch(-1, reasons.BAD_TOPIC_LENGTH)
    if not is_topic_text(topic):
        raise MalformedBatch(-1, reasons.BAD_TOPIC_NAME)
    if not 0 <= queue_id <= 0x7FFFFFFF:
        raise MalformedBatch(-1, reasons.BAD_QUEUE_ID)
    if len(topic) <= TOPIC_V1_MAX:
        return OpenQueue(queue_id, MAGIC_V1, bytes((len(topic),)) + topic)
    return OpenQueue(queue_id, MAGIC_V2, len(topic).to_bytes(2, "big") + topic)


def _check_numbers(batch: ColumnBatch, born_timestamp: int) -> None:
    narrow = (batch.flag, batch.sys_flag, batch.reconsume_times)
    wide = (batch.prepared_offset, born_timestamp)
    if not all(-(1 << 31) <= value < 1 << 31 for value in narrow) or not all(
        -(1 << 63) <= value < 1 << 63 for value in wide
    ):
        raise MalformedBatch(-1, reasons.BAD_NUMBER)


def _open_column(column: Column, count: int) -> OpenColumn:
    data, offsets, width = column
    if width not in (4, 8):
        raise MalformedBatch(-1, reasons.BAD_WIDTH)
    dtype: np.dtype[Any] = np.dtype(np.int32 if width == 4 else np.int64)
    return OpenColumn(as_view(data), _open_integers(offsets, dtype, count + 1))


def _open_integers(buffer: Buffer, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    view = as_view(buffer)
    if len(view) // dtype.itemsize < count:
        raise MalformedBatch(-1, reasons.COLUMN_TOO_SHORT)
    return np.frombuffer(view, np.uint8)[: count * dtype.itemsize].view(dtype)


def plan_rows(opened: OpenBatch, first: int, last: int) -> RowPlan:
    """Measure rows `first..last-1` up to the first bad one."""
    stop, reason = last, ""
    if opened.queue_index is not None:
        index = opened.queue_index[first:stop]
        stop, reason = _narrow(
            (index < 0) | (index >= len(opened.queues)), first, stop, reason,
            reasons.BAD_QUEUE_INDEX,
        )  # fmt: skip
    for column in (opened.body, opened.tags, opened.keys, opened.properties):
        if column is not None:
            starts, ends = column.bounds(first, stop)
            bad = (starts < 0) | (starts > ends) | (ends > len(column.data))
            stop, reason = _narrow(bad, first, stop, reason, reasons.BAD_OFFSETS)
    for column, separator_reason in (
        (opened.tags, reasons.TAGS_SEPARATOR),
        (opened.keys, reasons.KEYS_SEPARATOR),
    ):
        if column is not None:
            row = _separator_row(column, first, stop)
            if row < stop:
                stop, reason = row, separator_reason
    property_sizes = _property_sizes(opened, first, stop)
    if not opened.batch.append_crc:
        row = _unsafe_row(opened, first, stop, property_sizes)
        if row < stop:
            stop, reason = row, reasons.PROPERTIES_UNSAFE
    stop, reason = _narrow(
        property_sizes[: stop - first] > PROPERTY_TEXT_MAX, first, stop, reason,
        reasons.PROPERTIES_TOO_LONG,
    )  # fmt: skip
    property_sizes = property_sizes[: stop - first]
    sizes = _record_sizes(opened, first, stop) + property_sizes
    stop, reason = _narrow(sizes > SIZE_MAX, first, stop, reason, reasons.RECORD_TOO_LONG)
    return RowPlan(stop, reason, sizes[: stop - first])


def property_texts(opened: OpenBatch, first: int, last: int) -> list[bytes]:
    """Property text of rows `first..last-1` without the checksum property."""
    texts = [b""] * (last - first)
    for column, name in ((opened.tags, b"TAGS"), (opened.keys, b"KEYS")):
        if column is not None:
            values = _values(column, first, last)
            texts = [
                b"%b%b\x01%b\x02" % (text, name, value) if value else text
                for text, value in zip(texts, values, strict=True)
            ]
    if opened.properties is not None:
        values = _values(opened.properties, first, last)
        texts = [
            text + (value if not value or value[-1] == 2 else value + b"\x02")
            for text, value in zip(texts, values, strict=True)
        ]
    return texts


def _values(column: OpenColumn, first: int, last: int) -> list[bytes]:
    starts, ends = column.bounds(first, last)
    data = column.data
    return [
        data[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _narrow(
    bad: npt.NDArray[np.bool_], first: int, stop: int, reason: str, new_reason: str
) -> tuple[int, str]:
    """The first bad row becomes the new stop; a fault found earlier in the same row stays."""
    if bad.any():
        return first + int(bad.argmax()), new_reason
    return stop, reason


def _separator_row(column: OpenColumn, first: int, stop: int) -> int:
    """First row with 0x01 or 0x02 in its value, or `stop`."""
    if first == stop:
        return stop
    offsets = column.offsets[first : stop + 1]
    data_start, data_end = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(column.data[data_start:data_end], np.uint8)
    hits = (data == 1) | (data == 2)
    if not hits.any():
        return stop
    at = data_start + int(hits.argmax())
    return first + int(np.searchsorted(offsets, at, side="right")) - 1


def _property_sizes(opened: OpenBatch, first: int, stop: int) -> Int64s:
    sizes: Int64s = np.full(
        stop - first, CRC_TAIL_SIZE if opened.batch.append_crc else 0, dtype=np.int64
    )
    for column in (opened.tags, opened.keys):
        if column is not None:
            starts, ends = column.bounds(first, stop)
            lengths = ends - starts
            sizes += lengths + np.where(lengths > 0, _NAMED_PAIR_SIZE, 0)
    if opened.properties is not None:
        starts, ends = opened.properties.bounds(first, stop)
        lengths = ends - starts
        sizes += lengths
        filled = np.flatnonzero(lengths)
        if len(filled):
            data = np.frombuffer(opened.properties.data, np.uint8)
            sizes[filled] += data[ends[filled] - 1] != 2
    return sizes


def _unsafe_row(opened: OpenBatch, first: int, stop: int, property_sizes: Int64s) -> int:
    """First row whose own text would be taken for a checksum property, or `stop`."""
    if not (property_sizes[: stop - first] >= CRC_TAIL_SIZE).any():
        return stop
    for row, text in enumerate(property_texts(opened, first, stop), first):
        if looks_like_crc_tail(text[-CRC_TAIL_SIZE:]):
            return row
    return stop


def _record_sizes(opened: OpenBatch, first: int, stop: int) -> Int64s:
    """Record sizes without the properties."""
    starts, ends = opened.body.bounds(first, stop)
    # HEADERS end with BODYLEN; PROPLEN adds 2. RECORD_SIZE_MIN counts TOPICLEN of V1 too.
    fixed = HEADERS[opened.hosts].size + 2
    assert HEADERS[0].size + 3 == RECORD_SIZE_MIN
    topic_sizes = np.array([len(queue.topic_field) for queue in opened.queues], dtype=np.int64)
    if opened.queue_index is None:
        return ends - starts + (fixed + int(topic_sizes[0]))
    return ends - starts + fixed + topic_sizes[opened.queue_index[first:stop]]


class Row(NamedTuple):
    """One good row."""

    queue: int
    body: memoryview
    text: bytes
    """Property text without the checksum property."""
    size: int
    """Size of the whole record."""


def read_row(opened: OpenBatch, row: int) -> Row:
    """Check and collect one row; raises `MalformedBatch` with its first fault."""
    queue = 0
    if opened.queue_index is not None:
        queue = int(opened.queue_index[row])
        if not 0 <= queue < len(opened.queues):
            raise MalformedBatch(row, reasons.BAD_QUEUE_INDEX)
    body = _row_value(opened.body, row)
    tags = b"" if opened.tags is None else _row_value(opened.tags, row).tobytes()
    keys = b"" if opened.keys is None else _row_value(opened.keys, row).tobytes()
    text = b"" if opened.properties is None else _row_value(opened.properties, row).tobytes()
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


def _row_value(column: OpenColumn, row: int) -> memoryview:
    start, end = int(column.offsets[row]), int(column.offsets[row + 1])
    if not 0 <= start <= end <= len(column.data):
        raise MalformedBatch(row, reasons.BAD_OFFSETS)
    return column.data[start:end]
