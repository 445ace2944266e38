"""Log bytes -> queue units and index entries: the twin of `scan.c`."""

from __future__ import annotations

import re
from functools import lru_cache

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.message_properties import split_properties
from broker_core.codec.records.record_layout import (
    BLANK_RESERVE,
    CRC_TAIL_HEAD,
    CRC_TAIL_SIZE,
    KEY_ENTRY,
    MAGIC_BLANK,
    SIZE_AND_MAGIC,
    TRANSACTION_BITS,
    TRANSACTION_ROLLBACK,
    UNIT,
    takes_queue_offset,
)
from broker_core.codec.records.record_parse import (
    ParsedRecord,
    RecordFault,
    as_view,
    parse_record,
    verify_checksums,
)
from broker_core.codec.records.record_scan import (
    STOP_BLANK,
    STOP_EMPTY,
    STOP_GROUP,
    STOP_INVALID,
    STOP_LIMIT,
    Scan,
)
from broker_core.codec.reference.text import hash_state, index_key_hash, tags_hash
from broker_core.codec.wire.topic_name import SCHEDULE_TOPIC
from broker_core.errors import CorruptRecord

__all__ = ["check_record", "scan_records"]

_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()
_LEVEL = re.compile(rb"[+-]?[0-9]+")
_UNKNOWN_LEVEL_MS = 1000
_NO_PROPERTIES: dict[bytes, bytes] = {}


def check_record(buf: Buffer, start: int, limit: int, position: int, check_crc: int) -> int:
    """Size of the valid record at `buf[start:limit]`, or `CorruptRecord` with `position`."""
    view = as_view(buf)
    if not 0 <= start <= limit <= len(view):
        raise ValueError(reasons.BAD_RANGE)
    try:
        record = parse_record(view, start, limit)
        if record.physical_offset != position:
            raise RecordFault(reasons.BAD_POSITION)  # noqa: TRY301
        if check_crc:
            verify_checksums(view, start, record, check_crc)
    except RecordFault as fault:
        raise CorruptRecord("", position, fault.reason) from None
    return record.size


def scan_records(
    buf: Buffer,
    start: int,
    limit: int,
    position: int,
    check_crc: int,
    delays: Buffer,
    group_topic: bytes,
    index_tags: bool = False,
) -> Scan:
    """Walk the records of `buf[start:limit]`, whose first byte is log `position`.

    `delays` holds the milliseconds of each delay level as native int64s. `index_tags` adds a key
    for the tags of a record, as RocketMQ 5.5 does.
    """
    view = as_view(buf)
    if not 0 <= start <= limit <= len(view):
        raise ValueError(reasons.BAD_RANGE)
    delays_view = as_view(delays)
    walk = _Walk(delays_view[: len(delays_view) // 8 * 8].cast("q").tolist(), index_tags)
    cursor, stop, reason = start, STOP_LIMIT, ""
    while cursor < limit:
        stop = _stop_before(view, cursor, limit)
        if stop != STOP_LIMIT:
            break
        try:
            record = parse_record(view, cursor, limit)
            if record.physical_offset != position + cursor - start:
                raise RecordFault(reasons.BAD_POSITION)  # noqa: TRY301
            if check_crc:
                verify_checksums(view, cursor, record, check_crc)
            if record.topic == group_topic and walk.count:
                stop = STOP_GROUP
                break
            walk.accept(view, cursor, record)
        except RecordFault as fault:
            stop, reason = STOP_INVALID, fault.reason
            break
        cursor = record.end
    return walk.result(cursor, stop, reason)


def _stop_before(view: memoryview, cursor: int, limit: int) -> int:
    """Why no record can start at `cursor`; STOP_LIMIT if one can."""
    if limit - cursor < BLANK_RESERVE:
        return STOP_EMPTY
    size, magic = SIZE_AND_MAGIC.unpack_from(view, cursor)
    if magic == MAGIC_BLANK:
        return STOP_BLANK
    return STOP_EMPTY if size == 0 and magic == 0 else STOP_LIMIT


class _QueueUnits:
    """Units of one queue in the order of the log."""

    __slots__ = ("first_offset", "next_offset", "units")

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.next_offset = first_offset
        self.units: list[bytes] = []


class _Walk:
    """The result so far."""

    def __init__(self, delays_ms: list[int], index_tags: bool) -> None:
        self.count = 0
        self._index_tags = index_tags
        self._delays_ms = delays_ms
        self._store_timestamp = 0
        self._queues: dict[tuple[bytes, int], _QueueUnits] = {}
        self._keys: list[bytes] = []

    def accept(self, view: memoryview, start: int, record: ParsedRecord) -> None:
        """Add one valid record; raises `RecordFault` if its queue offset leaves a gap."""
        properties = _properties(view, record)
        if takes_queue_offset(record.sys_flag):
            key = (record.topic, record.queue_id)
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _QueueUnits(record.queue_offset)
            elif queue.next_offset != record.queue_offset:
                raise RecordFault(reasons.QUEUE_GAP)
            queue.next_offset += 1
            tags_code = self._tags_code(record, properties) if properties else 0
            queue.units.append(UNIT.pack(record.physical_offset, record.size, tags_code))
        if properties and record.sys_flag & TRANSACTION_BITS != TRANSACTION_ROLLBACK:
            self._index(record, properties)
        self.count += 1
        self._store_timestamp = record.store_timestamp

    def _tags_code(self, record: ParsedRecord, properties: dict[bytes, bytes]) -> int:
        if record.topic == _SCHEDULE_TOPIC and b"DELAY" in properties:
            delay_ms = self._delay_ms(properties[b"DELAY"])
            if delay_ms is not None:
                return _wrap_int64(record.store_timestamp + delay_ms)
        tags = properties.get(b"TAGS")
        return tags_hash(tags) if tags else 0

    def _delay_ms(self, level_text: bytes) -> int | None:
        """Milliseconds of a delay level; None for a level that means no delay."""
        level = _parse_level(level_text)
        if level is None:
            return _UNKNOWN_LEVEL_MS
        if level <= 0:
            return None
        if not self._delays_ms:
            return _UNKNOWN_LEVEL_MS
        return self._delays_ms[min(level, len(self._delays_ms)) - 1]

    def _index(self, record: ParsedRecord, properties: dict[bytes, bytes]) -> None:
        unique_key = properties.get(b"UNIQ_KEY")
        keys = properties.get(b"KEYS")
        tags = properties.get(b"TAGS") if self._index_tags else None
        if unique_key is None and keys is None and tags is None:
            return
        prefix = hash_state(record.topic + b"#")
        parts = [] if unique_key is None else [unique_key]
        if keys is not None:
            parts += [part for part in keys.split(b" ") if part]
        if tags is not None:
            # RocketMQ 5.5 finds messages by tag under this key.
            parts.append(b"T#" + tags)
        self._keys += [
            KEY_ENTRY.pack(
                index_key_hash(prefix, part), record.physical_offset, record.store_timestamp
            )
            for part in parts
        ]

    def result(self, end: int, stop: int, reason: str) -> Scan:
        queues = {
            key: (queue.first_offset, b"".join(queue.units)) for key, queue in self._queues.items()
        }
        return Scan(
            end, stop, reason, self.count, self._store_timestamp, queues,
            b"".join(self._keys),
        )  # fmt: skip


def _properties(view: memoryview, record: ParsedRecord) -> dict[bytes, bytes]:
    """Properties that matter to dispatch; empty at once when only the checksum is there."""
    size = record.end - record.properties_start
    if size == 0:
        return _NO_PROPERTIES
    text = view[record.properties_start : record.end].tobytes()
    if size == CRC_TAIL_SIZE and text.startswith(CRC_TAIL_HEAD):
        return _NO_PROPERTIES
    return split_properties(text)


@lru_cache(maxsize=256)
def _parse_level(text: bytes) -> int | None:
    # The length guard keeps the conversion of hostile digits cheap; ten digits decide the range.
    if _LEVEL.fullmatch(text) is None:
        return None
    digits = text.lstrip(b"+-").lstrip(b"0") or b"0"
    if len(digits) > 10:
        return None
    level = -int(digits) if text.startswith(b"-") else int(digits)
    return level if -(1 << 31) <= level < 1 << 31 else None


def _wrap_int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
