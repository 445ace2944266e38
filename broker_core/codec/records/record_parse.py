"""Parsing and verification of one log record: the Python definition of a valid record.

`parse_record` checks the structure, `verify_checksums` the content; `record.c` makes the same
checks in the same order. Both raise `RecordFault`, which never leaves the codec: each caller turns
it into the error that fits its input.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.record_layout import (
    BODY_LENGTH_AT,
    CRC_MASK,
    CRC_TAIL_SIZE,
    DAMAGE_ONLY,
    HEADERS,
    HOST_BITS,
    I16,
    I32,
    IPV6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    REQUIRE_CHECKSUM,
    SIZE_AND_MAGIC,
    SYS_FLAG_AT,
    TOPIC_MAX,
    TOPIC_V1_MAX,
    crc_tail_value,
    looks_like_crc_tail,
)

_TOPIC = re.compile(rb"[%|a-zA-Z0-9_-]+")
# By the host bits of SYSFLAG: bytes that IPv6 hosts add, and where BODYLEN is.
_HOST_EXTRA: Final = (0, IPV6_EXTRA, IPV6_EXTRA, 2 * IPV6_EXTRA)
_BODY_LENGTH_AT: Final = tuple(BODY_LENGTH_AT + extra for extra in _HOST_EXTRA)
# The low byte of SYSFLAG has the host bits.
_HOST_BITS_AT: Final = SYS_FLAG_AT + 3
_MAGIC_V2_END: Final = MAGIC_V2 & 0xFF


class RecordFault(Exception):
    """Internal: the bytes are not a valid record, for `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ParsedRecord(NamedTuple):
    """Fields of a record with valid structure; body and properties as buffer ranges."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body_start: int
    body_end: int
    topic: bytes
    properties_start: int
    end: int


def check_int64(value: int) -> None:
    """Raise `OverflowError` for a number that no 64-bit field can hold."""
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError("integer exceeds 64 bits")


def as_view(buffer: Buffer) -> memoryview:
    """The bytes of any C-contiguous buffer."""
    view = memoryview(buffer)
    if view.nbytes == 0:
        # A view with a zero in its shape cannot be cast.
        return memoryview(bytearray())
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def as_writable_view(buffer: Buffer) -> memoryview:
    """Like `as_view`; raises `BufferError` for a read-only buffer."""
    view = memoryview(buffer)
    if view.readonly:
        raise BufferError("buffer is read-only")
    return as_view(view)


@lru_cache(maxsize=4096)
def is_topic_text(topic: bytes) -> bool:
    """True if every byte of `topic` may be in a topic name, and there is one."""
    return _TOPIC.fullmatch(topic) is not None


def parse_record(view: memoryview, start: int, limit: int) -> ParsedRecord:
    """Fields of the record at `view[start:limit]`; raises `RecordFault` if its structure is bad."""
    # Nearly every record is valid, V1 and has IPv4 hosts: accept those at once. The full list of
    # checks decides on all others and determines the reason.
    if limit - start > RECORD_SIZE_MIN and not view[start + _HOST_BITS_AT] & HOST_BITS:
        fields = HEADERS[0].unpack_from(view, start)
        size, body_start = fields[0], start + HEADERS[0].size
        end, topic_at = start + size, body_start + fields[14]
        if fields[1] == MAGIC_V1 and body_start <= topic_at < end - 3 and end <= limit:
            topic_length = view[topic_at]
            text_start = topic_at + topic_length + 3
            if (
                topic_length <= TOPIC_V1_MAX
                and text_start <= end
                and (view[text_start - 2] << 8 | view[text_start - 1]) == end - text_start < 32768
                and is_topic_text(topic := view[topic_at + 1 : text_start - 2].tobytes())
                and fields[3] >= 0
                and fields[5] >= 0
                and (text_start == end or view[end - 1])
            ):
                return ParsedRecord._make(
                    (size, *fields[2:14], body_start, topic_at, topic, text_start, end)
                )
    return _parse_any_record(view, start, limit)


def _parse_any_record(view: memoryview, start: int, limit: int) -> ParsedRecord:
    if limit - start < 8:
        raise RecordFault(reasons.HEADER_CUT)
    size, magic = SIZE_AND_MAGIC.unpack_from(view, start)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise RecordFault(reasons.BAD_MAGIC)
    if size < RECORD_SIZE_MIN:
        raise RecordFault(reasons.SIZE_TOO_SMALL)
    if size > limit - start:
        raise RecordFault(reasons.SIZE_PAST_LIMIT)
    hosts = view[start + _HOST_BITS_AT] >> 4 & 3
    header = HEADERS[hosts]
    fixed = RECORD_SIZE_MIN + _HOST_EXTRA[hosts] + (magic == MAGIC_V2)
    if size < fixed:
        raise RecordFault(reasons.LENGTHS_DISAGREE)
    fields = header.unpack_from(view, start)
    body_length = fields[14]
    if body_length < 0:
        raise RecordFault(reasons.NEGATIVE_BODY)
    if body_length > size - fixed:
        raise RecordFault(reasons.LENGTHS_DISAGREE)
    body_start = start + header.size
    body_end = body_start + body_length
    topic, properties_start = _topic_at(view, body_end, start + size, magic)
    (properties_length,) = I16.unpack_from(view, properties_start - 2)
    if properties_length < 0:
        raise RecordFault(reasons.NEGATIVE_PROPERTIES)
    end = start + size
    if properties_start + properties_length != end:
        raise RecordFault(reasons.LENGTHS_DISAGREE)
    if not is_topic_text(topic):
        raise RecordFault(reasons.BAD_TOPIC_NAME)
    if fields[3] < 0:
        raise RecordFault(reasons.RECORD_QUEUE_ID)
    if fields[5] < 0:
        raise RecordFault(reasons.RECORD_QUEUE_OFFSET)
    if properties_length and not view[end - 1]:
        raise RecordFault(reasons.PROPERTIES_TORN)
    return ParsedRecord._make(
        (size, *fields[2:14], body_start, body_end, topic, properties_start, end)
    )


def _topic_at(view: memoryview, at: int, record_end: int, magic: int) -> tuple[bytes, int]:
    """Topic whose length field is at `at`, and where the properties start."""
    if magic == MAGIC_V1:
        length, start = view[at], at + 1
        bad = not 1 <= length <= TOPIC_V1_MAX
    else:
        length, start = I16.unpack_from(view, at)[0], at + 2
        bad = not 1 <= length <= TOPIC_MAX
    if bad:
        raise RecordFault(reasons.RECORD_TOPIC_LENGTH)
    if start + length + 2 > record_end:
        raise RecordFault(reasons.LENGTHS_DISAGREE)
    return view[start : start + length].tobytes(), start + length + 2


def verify_checksums(view: memoryview, start: int, record: ParsedRecord, level: int = 1) -> None:
    """Raise `RecordFault` unless the record's checksums are correct.

    `REQUIRE_CHECKSUM` also rejects a record without a whole-record checksum; `DAMAGE_ONLY` may be
    added to a level.
    """
    damage_only, level = level & DAMAGE_ONLY, level & ~DAMAGE_ONLY
    end = record.end
    stored = None
    if end - record.properties_start >= CRC_TAIL_SIZE:
        tail = view[end - CRC_TAIL_SIZE : end].tobytes()
        stored = crc_tail_value(tail)
        if stored is not None:
            if stored != crc32(view[start : end - CRC_TAIL_SIZE]) & CRC_MASK:
                raise RecordFault(reasons.RECORD_CRC)
            if damage_only:
                return
        elif looks_like_crc_tail(tail):
            raise RecordFault(reasons.CRC_TAIL_DAMAGED)
    if stored is None and level >= REQUIRE_CHECKSUM:
        raise RecordFault(reasons.CRC_TAIL_DAMAGED)
    if record.body_crc != crc32(view[record.body_start : record.body_end]) & CRC_MASK:
        raise RecordFault(reasons.BODY_CRC)


def properties_end(view: memoryview, record: ParsedRecord) -> int:
    """End of the property text without its checksum property."""
    end = record.end
    if end - record.properties_start >= CRC_TAIL_SIZE:
        tail_start = end - CRC_TAIL_SIZE
        if crc_tail_value(view[tail_start:end].tobytes()) is not None:
            return tail_start
    return end


def property_text(records: bytes, start: int, end: int) -> bytes:
    """Properties of the record at `records[start:end]`, whose structure is not checked again."""
    at = start + _BODY_LENGTH_AT[records[start + _HOST_BITS_AT] >> 4 & 3]
    at += 4 + int(I32.unpack_from(records, at)[0])
    if records[start + 7] == _MAGIC_V2_END:
        return records[at + 4 + (records[at] << 8 | records[at + 1]) : end]
    return records[at + 3 + records[at] : end]
