"""Template runs, records that have no log position yet: check them and copy them into the log.

A template's PHYSICALOFFSET is the number of its queue and its QUEUEOFFSET the ordinal in that queue
within the run. The twin of `run.c`.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final
from zlib import crc32

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import QUEUE_PLACE, Buffer
from broker_core.codec.records.record_layout import (
    BLANK_RESERVE,
    BORN_HOST_AT,
    CRC_MASK,
    CRC_TAIL_SIZE,
    HOST_BITS,
    I64,
    OFFSET_PAIR,
    QUEUE_OFFSET_AT,
    RECORD_SIZE_MIN,
    SIZE_MAX,
    TRANSACTION_BITS,
    crc_tail,
    crc_tail_value,
    takes_queue_offset,
)
from broker_core.codec.records.record_parse import (
    ParsedRecord,
    RecordFault,
    as_view,
    as_writable_view,
    check_int64,
    parse_record,
    verify_checksums,
)
from broker_core.errors import MalformedRecord

__all__ = ["find_unusual", "inspect_run", "relocate_run"]

# TOTALSIZE, SYSFLAG and PREPARED TRANSACTION OFFSET of a record with IPv4 hosts.
_HEAD: Final = Struct(">i32xi36xq")
# Parts of transactions; IPv6 hosts, with which the prepared offset is elsewhere.
_UNUSUAL_FLAGS: Final = TRANSACTION_BITS | HOST_BITS


def inspect_run(
    run: Buffer,
    queue_count: int,
    position: int,
    segment_size: int,
    places: bytes = b"",
    store_host_size: int = 0,
    check_crc: int = 1,
    body_size_max: int = SIZE_MAX,
) -> tuple[int, int, bytes]:
    """Check every template of `run` and lay it out from log `position`.

    With `places` (see `encode_places`) each record must be of the queue that it refers to; with
    `store_host_size` its store host must have that size; `check_crc` is the level of
    `verify_checksums`; no body may be larger than `body_size_max`.
    Returns (records, log position after the last one, queue offsets taken per queue as int64s);
    raises `MalformedRecord` with the byte position of the first bad template.
    """
    view = as_view(run)
    if segment_size <= 0:
        raise ValueError(reasons.BAD_SEGMENT_SIZE)
    if position < 0:
        raise ValueError(reasons.BAD_LOG_POSITION)
    if queue_count < 0:
        raise ValueError(reasons.BAD_QUEUE_REFERENCE)
    destinations = _parse_places(bytes(places), queue_count)
    counts = array("q", bytes(8 * queue_count))
    cursor = count = 0
    while cursor < len(view):
        try:
            record = parse_record(view, cursor, len(view))
            _check_place(record, destinations, queue_count, store_host_size)
            if check_crc:
                verify_checksums(view, cursor, record, check_crc)
            _check_template(record, counts, segment_size, max(body_size_max, 0))
        except RecordFault as fault:
            raise MalformedRecord(cursor, fault.reason) from None
        rest = segment_size - position % segment_size
        if record.size + BLANK_RESERVE > rest:
            position += rest
        position += record.size
        cursor = record.end
        count += 1
    return count, position, counts.tobytes()


def _parse_places(table: bytes, queue_count: int) -> list[tuple[bytes, int]]:
    places: list[tuple[bytes, int]] = []
    cursor = 0
    while table and len(places) < queue_count:
        if len(table) - cursor < QUEUE_PLACE.size:
            raise ValueError(reasons.BAD_QUEUE_REFERENCE)
        queue_id, topic_size = QUEUE_PLACE.unpack_from(table, cursor)
        cursor += QUEUE_PLACE.size + topic_size
        places.append((table[cursor - topic_size : cursor], queue_id))
    if cursor != len(table):
        raise ValueError(reasons.BAD_QUEUE_REFERENCE)
    return places


def _check_place(
    record: ParsedRecord,
    places: list[tuple[bytes, int]],
    queue_count: int,
    store_host_size: int,
) -> None:
    """The record is of the queue that it refers to, and its store host has the expected size."""
    queue = record.physical_offset
    if not 0 <= queue < queue_count:
        raise RecordFault(reasons.BAD_QUEUE_REFERENCE)
    if store_host_size and len(record.store_host) != store_host_size:
        raise RecordFault(reasons.STORE_HOST_DISAGREES)
    if places and record.queue_id != places[queue][1]:
        raise RecordFault(reasons.QUEUE_ID_DISAGREES)
    if places and record.topic != places[queue][0]:
        raise RecordFault(reasons.TOPIC_DISAGREES)


def _check_template(
    record: ParsedRecord, counts: array[int], segment_size: int, body_size_max: int
) -> None:
    queue = record.physical_offset
    if record.size > segment_size - BLANK_RESERVE:
        raise RecordFault(reasons.RECORD_EXCEEDS_SEGMENT)
    if record.body_end - record.body_start > body_size_max:
        raise RecordFault(reasons.BODY_EXCEEDS_LIMIT)
    taken = takes_queue_offset(record.sys_flag)
    if record.queue_offset != (counts[queue] if taken else 0):
        raise RecordFault(reasons.BAD_ORDINAL)
    counts[queue] += taken


def relocate_run(
    run: Buffer,
    run_start: int,
    next_offsets: Buffer,
    store_timestamp: int,
    store_host: bytes,
    out: Buffer,
    out_start: int,
    out_limit: int,
    position: int,
    places: bytes = b"",
) -> tuple[int, int]:
    """Copy templates of `run[run_start:]` into `out` while they fit, as records of the log.

    With `places` (see `encode_places`) each record must be of the queue that it refers to.
    Returns (first byte of `run` not copied, end of the bytes written); advances `next_offsets`.
    """
    view = as_view(run)
    if not 0 <= run_start <= len(view):
        raise ValueError(reasons.BAD_RANGE)
    offsets_view = as_writable_view(next_offsets)
    offsets = offsets_view[: len(offsets_view) // 8 * 8].cast("q")
    target = as_writable_view(out)
    if not 0 <= out_start <= out_limit <= len(target):
        raise ValueError(reasons.BAD_RANGE)
    check_int64(store_timestamp)
    check_int64(position)
    if position < 0:
        raise ValueError(reasons.BAD_LOG_POSITION)
    destinations = _parse_places(bytes(places), len(offsets))
    stamp = I64.pack(store_timestamp) + store_host
    cursor, out_cursor = run_start, out_start
    while cursor < len(view):
        try:
            record = parse_record(view, cursor, len(view))
            _check_place(record, [], len(offsets), 0)
            if len(record.store_host) != len(store_host):
                raise RecordFault(reasons.STORE_HOST_DISAGREES)  # noqa: TRY301
            _check_place(record, destinations, len(offsets), 0)
        except RecordFault as fault:
            raise MalformedRecord(cursor, fault.reason) from None
        out_end = out_cursor + record.size
        if out_end + BLANK_RESERVE > out_limit:
            break
        queue_offset = 0
        if takes_queue_offset(record.sys_flag):
            queue_offset = offsets[record.physical_offset]
            offsets[record.physical_offset] = queue_offset + 1
        target[out_cursor:out_end] = view[cursor : record.end]
        place = OFFSET_PAIR.pack(queue_offset, position + out_cursor - out_start)
        _stamp(target[out_cursor:out_end], record, place, stamp)
        cursor, out_cursor = record.end, out_end
    return cursor, out_cursor


def _stamp(copy: memoryview, record: ParsedRecord, place: bytes, stamp: bytes) -> None:
    """Patch a copied template: queue and log offset, store time and host, checksum property.

    The checksum changes only by the effect of the patch: existing damage stays detectable.
    """
    covered = copy[: record.size - CRC_TAIL_SIZE]
    value = None
    if record.end - record.properties_start >= CRC_TAIL_SIZE:
        value = crc_tail_value(copy[len(covered) :].tobytes())
    before = crc32(covered) if value is not None else 0
    copy[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + len(place)] = place
    stamp_start = BORN_HOST_AT + len(record.born_host)
    copy[stamp_start : stamp_start + len(stamp)] = stamp
    if value is not None and value <= CRC_MASK:
        copy[len(covered) :] = crc_tail((value ^ before ^ crc32(covered)) & CRC_MASK)


def find_unusual(run: Buffer, start: int, size_max: int) -> int:
    """Position in `run` of the first record from `start` on that needs a closer check, or -1.

    Such a record is larger than `size_max`, part of a transaction or has IPv6 hosts. Raises
    `MalformedRecord` when sizes do not add up; nothing else is checked.
    """
    view = as_view(run)
    end = len(view)
    if not 0 <= start <= end or size_max < 0:
        raise ValueError(reasons.BAD_RANGE)
    while start < end:
        if end - start < RECORD_SIZE_MIN:
            raise MalformedRecord(start, reasons.HEADER_CUT)
        size, sys_flag, prepared = _HEAD.unpack_from(view, start)
        if size < RECORD_SIZE_MIN:
            raise MalformedRecord(start, reasons.SIZE_TOO_SMALL)
        if size > end - start:
            raise MalformedRecord(start, reasons.SIZE_PAST_LIMIT)
        if size > size_max or sys_flag & _UNUSUAL_FLAGS or prepared:
            return start
        start += size
    return -1
