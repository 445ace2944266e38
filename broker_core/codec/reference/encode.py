"""Columns -> records, and one message -> one record: the twin of `encode.c`.

Large batches are encoded in chunks: the headers of a chunk are built as one numpy array, and two
checksums per row remain. When all records of a chunk have the same size, columns are copied as
matrices. Batches too small to pay for numpy's set-up are encoded row by row.
"""

from __future__ import annotations

from array import array
from types import MappingProxyType
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import TEMPLATE, Buffer, Column, ColumnBatch
from broker_core.codec.records.record_layout import (
    BLANK_RESERVE,
    CRC_MASK,
    CRC_TAIL_HEAD,
    CRC_TAIL_SIZE,
    HEADERS,
    I16,
    TRANSACTION_PREPARED,
    crc_tail,
)
from broker_core.codec.records.record_parse import as_writable_view, check_int64
from broker_core.codec.records.row_digest import sum_of_digests, text_words
from broker_core.codec.reference.batch import (
    Int64s,
    OpenBatch,
    open_batch,
    plan_rows,
    property_texts,
    read_row,
)
from broker_core.errors import MalformedBatch

__all__ = ["encode_batch", "encode_message", "encode_put", "measure_batch"]

_NOWHERE: Final = -2
_CHUNK_ROWS = 4096
_SMALL_ROWS = 8
_POWERS_OF_TEN = 10 ** np.arange(10, dtype=np.int64)


def _header_dtype(born_size: int, store_size: int) -> np.dtype[Any]:
    """Layout of `record_layout.HEADERS` with names, so that a field of all rows is one column."""
    fields = (
        "size >i4, magic >u4, body_crc >i4, queue_id >i4, flag >i4, queue_offset >i8, "
        f"physical_offset >i8, sys_flag >i4, born_timestamp >i8, born_host V{born_size}, "
        f"store_timestamp >i8, store_host V{store_size}, reconsume_times >i4, prepared_offset >i8, "
        "body_length >i4"
    )
    pairs = [field.split() for field in fields.split(", ")]
    return np.dtype([(name, kind) for name, kind in pairs])


_HEADER_DTYPES = tuple(
    _header_dtype(born, store) for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)


def measure_batch(batch: ColumnBatch) -> tuple[int, int]:
    """(bytes of all records, bytes of the largest); raises `MalformedBatch` at the first fault."""
    opened = open_batch(batch)
    if batch.count <= _SMALL_ROWS:
        sizes = [read_row(opened, row).size for row in range(batch.count)]
        return sum(sizes), max(sizes, default=0)
    total = largest = 0
    for first in range(0, batch.count, _CHUNK_ROWS):
        plan = plan_rows(opened, first, min(first + _CHUNK_ROWS, batch.count))
        if plan.reason:
            raise MalformedBatch(plan.stop, plan.reason)
        total += int(plan.sizes.sum())
        largest = max(largest, int(plan.sizes.max()))
    return total, largest


def encode_batch(
    batch: ColumnBatch,
    first_row: int,
    next_offsets: Buffer,
    store_timestamp: int,
    out: Buffer,
    out_start: int,
    out_limit: int,
    position: int,
    digest: Buffer | None = None,
) -> tuple[int, int]:
    """Write rows from `first_row` into `out` while they fit; see `ColumnBatch` for the rows.

    Returns (first row not written, end of the bytes written). `next_offsets` holds one native int64
    per queue and is advanced. Position `TEMPLATE` writes templates, whose PHYSICALOFFSET is the
    queue's number in the batch. `digest` is a native uint64: the digest of the rows written
    (`digest_rows`) is added to it.
    """
    opened = open_batch(batch)
    if not 0 <= first_row <= batch.count:
        raise ValueError(reasons.BAD_FIRST_ROW)
    offsets = _next_offsets(next_offsets, len(opened.queues))
    view = as_writable_view(out)
    if not 0 <= out_start <= out_limit <= len(view):
        raise ValueError(reasons.BAD_RANGE)
    check_int64(store_timestamp)
    check_int64(position)
    if position < TEMPLATE:
        raise ValueError(reasons.BAD_LOG_POSITION)
    sum_of_rows = None if digest is None else _open_digest(digest)
    row, cursor = _encoded(
        opened, first_row, offsets, store_timestamp, view, out_start, out_limit, position
    )
    if sum_of_rows is not None and row > first_row:
        sum_of_rows += np.uint64(_digest_of(opened, first_row, row))
    return row, cursor


def _open_digest(digest: Buffer) -> npt.NDArray[np.uint64]:
    view = as_writable_view(digest)
    if len(view) != np.dtype(np.uint64).itemsize:
        raise ValueError("digest must have 8 bytes")
    return np.frombuffer(view, np.uint8).view(np.uint64)


def _digest_of(opened: OpenBatch, first: int, last: int) -> int:
    """Digest of rows `first..last-1`."""
    words: list[Any] = []
    for column in (opened.body, opened.tags, opened.keys, opened.properties):
        if column is None:
            words.append(None)
            continue
        starts, ends = column.bounds(first, last)
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        words.append(text_words(ends - starts, [crc32(column.data[a:b]) for a, b in pairs]))
    return sum_of_digests(words, opened.batch.flag & 0xFFFFFFFF, last - first)


def _encoded(
    opened: OpenBatch,
    first_row: int,
    offsets: Int64s,
    store_timestamp: int,
    view: memoryview,
    out_start: int,
    out_limit: int,
    position: int,
) -> tuple[int, int]:
    batch = opened.batch
    if batch.count - first_row <= _SMALL_ROWS:
        return encode_rows(
            opened, first_row, offsets, store_timestamp, view, out_start, out_limit, position
        )
    row, cursor = first_row, out_start
    while row < batch.count:
        plan = plan_rows(opened, row, min(row + _CHUNK_ROWS, batch.count))
        ends = cursor + np.cumsum(plan.sizes)
        fitting = int(np.searchsorted(ends, out_limit - BLANK_RESERVE, side="right"))
        if fitting:
            sizes, last = plan.sizes[:fitting], row + fitting
            headers = _headers(opened, row, last, offsets, store_timestamp)
            headers["size"] = sizes
            if position >= 0:
                headers["physical_offset"] = position - out_start + ends[:fitting] - sizes
            _write_records(opened, row, last, headers, sizes, view, cursor)
            row, cursor = last, int(ends[fitting - 1])
        if fitting < len(plan.sizes):
            break
        if plan.reason:
            raise MalformedBatch(plan.stop, plan.reason)
    return row, cursor


def _next_offsets(buffer: Buffer, queue_count: int) -> Int64s:
    view = as_writable_view(buffer)
    if len(view) // 8 < queue_count:
        raise ValueError(reasons.BAD_NEXT_OFFSETS)
    return np.frombuffer(view, np.uint8)[: queue_count * 8].view(np.int64)


def _headers(
    opened: OpenBatch, first: int, last: int, next_offsets: Int64s, store_timestamp: int
) -> npt.NDArray[Any]:
    """Headers of rows `first..last-1`, complete but for size and a real PHYSICALOFFSET."""
    batch, queue = opened.batch, opened.queues[0]
    layout = HEADERS[opened.hosts]
    born = 0 if opened.born_timestamps is not None else batch.born_timestamp
    template = layout.pack(
        0, queue.magic, 0, queue.queue_id, batch.flag, 0, 0, opened.sys_flag, born,
        batch.born_host, store_timestamp, batch.store_host, batch.reconsume_times,
        batch.prepared_offset, 0,
    )  # fmt: skip
    headers = np.empty(last - first, _HEADER_DTYPES[opened.hosts])
    headers[:] = np.frombuffer(template, headers.dtype)
    if opened.born_timestamps is not None:
        headers["born_timestamp"] = opened.born_timestamps[first:last]
    index = None if opened.queue_index is None else opened.queue_index[first:last]
    if index is not None:
        headers["queue_id"] = np.array([q.queue_id for q in opened.queues], np.int32)[index]
        headers["magic"] = np.array([q.magic for q in opened.queues], np.uint32)[index]
        headers["physical_offset"] = index
    if opened.counts_offsets:
        headers["queue_offset"] = _take_offsets(index, last - first, next_offsets)
    starts, ends = opened.body.bounds(first, last)
    headers["body_length"] = ends - starts
    body = opened.body.data
    headers["body_crc"] = [
        crc32(body[start:end]) & CRC_MASK
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return headers


def _take_offsets(index: npt.NDArray[np.int32] | None, count: int, next_offsets: Int64s) -> Int64s:
    """Queue offsets of `count` rows in order; advances `next_offsets`."""
    if index is None:
        first = int(next_offsets[0])
        next_offsets[0] += count
        return np.arange(first, first + count, dtype=np.int64)
    order = np.argsort(index, kind="stable")
    per_queue = np.bincount(index, minlength=len(next_offsets))
    group_starts = np.cumsum(per_queue) - per_queue
    taken = np.empty(count, np.int64)
    in_order = index[order]
    taken[order] = np.arange(count) - group_starts[in_order] + next_offsets[in_order]
    next_offsets += per_queue
    return taken


def _write_records(
    opened: OpenBatch,
    first: int,
    last: int,
    headers: npt.NDArray[Any],
    sizes: Int64s,
    out: memoryview,
    cursor: int,
) -> None:
    plain = opened.tags is None and opened.keys is None and opened.properties is None
    one_topic = len({queue.topic_field for queue in opened.queues}) == 1
    if plain and one_topic and int(sizes.min()) == int(sizes.max()):
        _write_equal_records(opened, first, headers, int(sizes[0]), out, cursor)
    else:
        _write_mixed_records(opened, first, last, headers, out, cursor)


def _write_equal_records(
    opened: OpenBatch,
    first: int,
    headers: npt.NDArray[Any],
    size: int,
    out: memoryview,
    cursor: int,
) -> None:
    """Records of one topic and size without properties: columns are copied as matrices."""
    count, header_size = len(headers), headers.dtype.itemsize
    end = cursor + count * size
    matrix = np.frombuffer(out[cursor:end], np.uint8).reshape(count, size)
    matrix[:, :header_size] = headers.view(np.uint8).reshape(count, header_size)
    body_size = int(headers["body_length"][0])
    body_start = int(opened.body.offsets[first])
    bodies = np.frombuffer(opened.body.data, np.uint8)[body_start : body_start + count * body_size]
    matrix[:, header_size : header_size + body_size] = bodies.reshape(count, body_size)
    append_crc = opened.batch.append_crc
    suffix = opened.queues[0].topic_field + I16.pack(CRC_TAIL_SIZE if append_crc else 0)
    if append_crc:
        suffix += CRC_TAIL_HEAD + b"0000000000\x02"
    matrix[:, header_size + body_size :] = np.frombuffer(suffix, np.uint8)
    if append_crc:
        covered = size - CRC_TAIL_SIZE
        checksums = np.array(
            [crc32(out[start : start + covered]) for start in range(cursor, end, size)], np.int64
        )
        digits = (checksums & CRC_MASK)[:, None] // _POWERS_OF_TEN % 10
        matrix[:, size - 11 : size - 1] = digits + ord("0")


def _write_mixed_records(
    opened: OpenBatch,
    first: int,
    last: int,
    headers: npt.NDArray[Any],
    out: memoryview,
    cursor: int,
) -> None:
    starts, ends = opened.body.bounds(first, last)
    index = [0] * (last - first)
    if opened.queue_index is not None:
        index = opened.queue_index[first:last].tolist()
    topic_fields = [queue.topic_field for queue in opened.queues]
    append_crc = opened.batch.append_crc
    tail_size = CRC_TAIL_SIZE if append_crc else 0
    body, header_bytes, header_size = opened.body.data, headers.tobytes(), headers.dtype.itemsize
    parts: list[bytes | memoryview] = []
    header_start = 0
    for queue, start, end, text in zip(
        index, starts.tolist(), ends.tolist(), property_texts(opened, first, last), strict=True
    ):
        header = header_bytes[header_start : header_start + header_size]
        header_start += header_size
        content = body[start:end]
        suffix = topic_fields[queue] + I16.pack(len(text) + tail_size) + text
        parts += (header, content, suffix)
        if append_crc:
            checksum = crc32(suffix, crc32(content, crc32(header)))
            parts.append(crc_tail(checksum & CRC_MASK))
    run = b"".join(parts)
    out[cursor : cursor + len(run)] = run


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
    # `TEMPLATE` would ask the batch encoder for a template.
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

    0, with nothing written, if it does not fit or if any field has another type or is invalid.
    `text` is that of the properties, without tags and keys.
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
        # The bit of prepared messages is set in rollbacks, too.
        or sys_flag & TRANSACTION_PREPARED
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
