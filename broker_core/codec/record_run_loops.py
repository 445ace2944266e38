"""Template runs (records without a place in the log yet): inspect them, then give them a place.

A template's PHYSICALOFFSET is the number of its queue and its QUEUEOFFSET the ordinal in that queue
within the run. Pure Python: the twin of the native functions.
"""

from __future__ import annotations

from array import array
from zlib import crc32

from broker_core.codec import record_reasons as reasons
from broker_core.codec.column_batch import Buffer
from broker_core.codec.record_checks import (
    ParsedRecord,
    RecordFault,
    as_view,
    as_writable_view,
    parse_record,
    properties_end,
    verify_checksums,
)
from broker_core.codec.record_encode_loops import check_int64
from broker_core.codec.record_layout import (
    BLANK_RESERVE,
    BORN_HOST_AT,
    CRC_MASK,
    I64,
    OFFSET_PAIR,
    QUEUE_OFFSET_AT,
    TRANSACTION_BITS,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    crc_tail,
)
from broker_core.errors import MalformedRecord


def takes_queue_offset(sys_flag: int) -> bool:
    """False for prepared and rollback messages, which are in no queue."""
    return sys_flag & TRANSACTION_BITS not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def inspect_run(
    run: Buffer, queue_count: int, position: int, segment_size: int
) -> tuple[int, int, bytes]:
    """Prove every template of `run` and lay it out from log `position`.

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
    counts = array("q", bytes(8 * queue_count))
    cursor = count = 0
    while cursor < len(view):
        try:
            record = parse_record(view, cursor, len(view))
            _prove_template(view, cursor, record, counts, segment_size)
        except RecordFault as fault:
            raise MalformedRecord(cursor, fault.reason) from None
        rest = segment_size - position % segment_size
        if record.size + BLANK_RESERVE > rest:
            position += rest
        position += record.size
        cursor = record.end
        count += 1
    return count, position, counts.tobytes()


def _prove_template(
    view: memoryview, start: int, record: ParsedRecord, counts: array[int], segment_size: int
) -> None:
    queue = record.physical_offset
    if not 0 <= queue < len(counts):
        raise RecordFault(reasons.BAD_QUEUE_REFERENCE)
    verify_checksums(view, start, record)
    if record.size > segment_size - BLANK_RESERVE:
        raise RecordFault(reasons.RECORD_EXCEEDS_SEGMENT)
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
) -> tuple[int, int]:
    """Copy templates of `run[run_start:]` into `out` while they fit, as records of the log.

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
    stamp = I64.pack(store_timestamp) + store_host
    cursor, out_cursor = run_start, out_start
    while cursor < len(view):
        try:
            record = parse_record(view, cursor, len(view))
            if not 0 <= record.physical_offset < len(offsets):
                raise RecordFault(reasons.BAD_QUEUE_REFERENCE)  # noqa: TRY301
            if len(record.store_host) != len(store_host):
                raise RecordFault(reasons.STORE_HOST_DISAGREES)  # noqa: TRY301
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
        _stamp(target, out_cursor, record, place, stamp, properties_end(view, record) - cursor)
        cursor, out_cursor = record.end, out_end
    return cursor, out_cursor


def _stamp(
    target: memoryview,
    start: int,
    record: ParsedRecord,
    place: bytes,
    stamp: bytes,
    covered_size: int,
) -> None:
    """Patch a copied template: queue and log offset, store time and host, checksum property."""
    target[start + QUEUE_OFFSET_AT : start + QUEUE_OFFSET_AT + len(place)] = place
    stamp_start = start + BORN_HOST_AT + len(record.born_host)
    target[stamp_start : stamp_start + len(stamp)] = stamp
    if covered_size < record.size:
        covered_end = start + covered_size
        checksum = crc32(target[start:covered_end]) & CRC_MASK
        target[covered_end : start + record.size] = crc_tail(checksum)
