"""Template runs (records without a place in the log yet): inspect them, then give them a place.

A template's PHYSICALOFFSET is the number of its queue and its QUEUEOFFSET the ordinal in that queue
within the run. Pure Python: the twin of the native functions.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from zlib import crc32

from broker_core.codec import record_reasons as reasons
from broker_core.codec.column_batch import Buffer
from broker_core.codec.record_checks import (
    ParsedRecord,
    RecordFault,
    as_view,
    as_writable_view,
    check_int64,
    parse_record,
    verify_checksums,
)
from broker_core.codec.record_layout import (
    BLANK_RESERVE,
    BORN_HOST_AT,
    CRC_MASK,
    CRC_TAIL_SIZE,
    I64,
    OFFSET_PAIR,
    QUEUE_OFFSET_AT,
    SIZE_MAX,
    TRANSACTION_BITS,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    crc_tail,
    crc_tail_value,
)
from broker_core.errors import MalformedRecord


def takes_queue_offset(sys_flag: int) -> bool:
    """False for prepared and rollback messages, which are in no queue."""
    return sys_flag & TRANSACTION_BITS not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


PLACE = struct.Struct(">IH")


def encode_places(queues: Iterable[tuple[bytes, int]]) -> bytes:
    """The table of `inspect_run`: queue id, topic size and topic of each queue."""
    return b"".join(PLACE.pack(queue_id, len(topic)) + topic for topic, queue_id in queues)


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
    """Prove every template of `run` and lay it out from log `position`.

    With `places` (see `encode_places`) each record must be of the queue that it refers to; with
    `store_host_size` it must have room for a store host of that size; `check_crc` is the level
    of `verify_checksums`; no body may be larger than `body_size_max`.
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
            _prove_template(record, counts, segment_size, max(body_size_max, 0))
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
        if len(table) - cursor < PLACE.size:
            raise ValueError(reasons.BAD_QUEUE_REFERENCE)
        queue_id, topic_size = PLACE.unpack_from(table, cursor)
        cursor += PLACE.size + topic_size
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
    """The record goes where the caller says that its queue is, and can take the store's host."""
    queue = record.physical_offset
    if not 0 <= queue < queue_count:
        raise RecordFault(reasons.BAD_QUEUE_REFERENCE)
    if store_host_size and len(record.store_host) != store_host_size:
        raise RecordFault(reasons.STORE_HOST_DISAGREES)
    if places and record.queue_id != places[queue][1]:
        raise RecordFault(reasons.QUEUE_ID_DISAGREES)
    if places and record.topic != places[queue][0]:
        raise RecordFault(reasons.TOPIC_DISAGREES)


def _prove_template(
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

    The checksum changes by what the patch changes, whatever it was: damage stays visible.
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
