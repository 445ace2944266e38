"""Reads: by queue offset, as columns, by position, by time, by key.

Owns nothing; every record is verified against its checksums and its queue entry before it is
handed out, so that damage is reported and never served. A queue file that fails its checksum is
rebuilt from the log on the way.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar

from broker_core.codec.message_properties import KEY_SEPARATOR, KEYS, UNIQ_KEY
from broker_core.codec.message_record import MessageRecord, decode_record
from broker_core.codec.record_columns import (
    check_record,
    choose_units,
    decode_columns,
    gather_records,
)
from broker_core.codec.record_layout import DAMAGE_ONLY
from broker_core.config import StoreConfig
from broker_core.errors import CorruptRecord, InvalidArgument
from broker_core.protocol_codes import GetStatus
from broker_core.storage.commit_log import CommitLog
from broker_core.storage.consume_queue import UNIT, UNIT_SIZE, ConsumeQueue, QueueDamaged
from broker_core.storage.consume_queue_set import ConsumeQueueSet
from broker_core.storage.message_index import IndexDamaged, MessageIndex
from broker_core.storage.segment_file import segment_name
from broker_core.storage.segment_sequence import COMMIT_LOG_DIR
from broker_core.store.filtered_read import FilteredRead, Limits, RecordFilter
from broker_core.store.held_back import HeldBack
from broker_core.store.log_spans import spans_of

SIZE = struct.Struct(">i")
TIME = struct.Struct(">q")
SYS_FLAG_AT = 36
STORE_TIME_AT = 56
BORN_HOST_V6 = 0x10
PRE_BLANK_SIZE = 0x7FFFFFFF

Result = TypeVar("Result")


class GetResult(NamedTuple):
    """Outcome of a read by queue offset; `records` are the stored bytes, back to back."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    message_count: int = 0
    records: bytes = b""
    last_position: int = -1

    def messages(self) -> list[MessageRecord]:
        """The records decoded one by one."""
        decoded = []
        start = 0
        while start < len(self.records):
            size = SIZE.unpack_from(self.records, start)[0]
            decoded.append(decode_record(self.records, start, limit=start + size))
            start += size
        return decoded


class MessageReader:
    """Owner thread only."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueueSet,
        index: MessageIndex | None,
        heal_queue: Callable[[ConsumeQueue], None],
        heal_index: Callable[[int], None],
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._heal_queue = heal_queue
        self._heal_index = heal_index
        self.held_back: HeldBack | None = None
        """What the queues have and readers may not see yet."""

    def end_of(self, queue: ConsumeQueue) -> int:
        """The end of a queue for readers."""
        held = self.held_back
        if held is None:
            return queue.max_offset
        return min(held.ends.get(queue.key, queue.max_offset), queue.max_offset)

    def get(
        self,
        topic: bytes,
        queue_id: int,
        offset: int,
        count_max: int,
        size_max: int,
        tag_codes: Collection[int] | None,
        record_filter: RecordFilter | None = None,
    ) -> GetResult:
        """Up to `count_max` records from `offset`, or only those with one of the tag codes.

        With a `record_filter`, it alone decides.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, self.end_of(queue)
        if high < offset <= queue.max_offset:
            # Held back: whoever has read so far before waits there.
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        corrected = _corrected(offset, low, high)
        if corrected is not None:
            return GetResult(corrected[0], corrected[1], low, high)
        if record_filter is not None:
            return self._filtered(queue, offset, Limits(count_max, size_max), record_filter)
        visit_max = count_max if tag_codes is None else self._config.visited_units_max
        count = min(max(count_max, visit_max), high - offset)
        units = self._healed(queue, lambda: queue.read(offset, count))
        codes = None if tag_codes is None else array("i", tag_codes)
        runs, visited, filtered, removed = choose_units(
            units, self._log.start, count_max, size_max, codes
        )
        next_offset = offset + visited
        if not runs:
            removed = removed and not filtered
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
            return GetResult(status, next_offset, low, high)
        parts = [
            self._gather(units[start * UNIT_SIZE : end * UNIT_SIZE], offset + start)
            for start, end in runs
        ]
        count = sum(end - start for start, end in runs)
        last = UNIT.unpack_from(units, (runs[-1][1] - 1) * UNIT_SIZE)[0]
        records = parts[0] if len(parts) == 1 else b"".join(parts)
        return GetResult(GetStatus.FOUND, next_offset, low, high, count, records, last)

    def _filtered(
        self, queue: ConsumeQueue, offset: int, limits: Limits, record_filter: RecordFilter
    ) -> GetResult:
        low, high = queue.min_offset, self.end_of(queue)
        count = min(max(limits.count_max, self._config.visited_units_max), high - offset)
        units = self._healed(queue, lambda: queue.read(offset, count))
        read = FilteredRead(units, offset, self._log.start, self._gather)
        read.run(record_filter, limits)
        if read.count:
            status = GetStatus.FOUND
        elif read.filtered or not read.visited:
            status = GetStatus.NO_MATCHED_MESSAGE
        else:
            status = GetStatus.MESSAGE_WAS_REMOVING
        following = offset + read.visited
        return GetResult(status, following, low, high, read.count, read.records, read.last_position)

    def columns(
        self, topic: bytes, queue_id: int, start: int, until: int, wanted: int
    ) -> dict[str, Any]:
        """Exactly the messages `[start, until)` of a queue as column buffers."""
        queue = self._queues.find(topic, queue_id)
        low, high = (queue.min_offset, self.end_of(queue)) if queue is not None else (0, 0)
        if queue is None or not low <= start <= until <= high:
            raise InvalidArgument(
                f"offsets [{start}, {until}) of {topic.decode('ascii', 'replace')}-{queue_id} are "
                f"not all readable: it holds [{low}, {high})"
            )
        units = self._healed(queue, lambda: queue.read(start, until - start))
        spans = spans_of(self._log, units, self._cold_below())
        try:
            return decode_columns(
                spans, units, start, queue_id, topic, wanted, self._log.check_level | DAMAGE_ONLY
            )
        except CorruptRecord as error:
            raise self._named(error) from error

    def units(
        self, topic: bytes, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """(position, size, tag code) of the entries `[offset, offset + count)` that there are."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < self.end_of(queue):
            return []
        count = min(count, self.end_of(queue) - offset)
        units = self._healed(queue, lambda: queue.read(offset, count))
        return list(UNIT.iter_unpack(units))

    def at(self, position: int) -> MessageRecord | None:
        """The record that starts at a log position; None for a position outside the log.

        Inside the log a position without a valid record cannot be told from damage, so it is
        reported as such.
        """
        segment = self._log.segments.find(position)
        if segment is None or position >= segment.base + segment.committed:
            return None
        start = position - segment.base
        try:
            return decode_record(
                segment.view,
                start,
                limit=segment.committed,
                position=position,
                check_crc=self._log.check_level,
            )
        except CorruptRecord as error:
            raise self._named(error) from error

    def record_at(self, position: int) -> bytes | None:
        """The stored bytes of what `at` returns, if readers may see it."""
        record, held = self.at(position), self.held_back
        if record is None:
            return None
        segment = self._log.segments.find(position)
        assert segment is not None
        start = position - segment.base
        size = SIZE.unpack_from(segment.view, start)[0]
        if held is not None and held.hides(position + size, record.topic):
            return None
        return bytes(segment.view[start : start + size])

    def store_time(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Store time of one entry, read from the log."""
        unit = self._healed(queue, lambda: queue.unit(offset))
        if unit is None or unit[1] == PRE_BLANK_SIZE:
            return None
        segment = self._log.segments.find(unit[0])
        if segment is None:
            return None
        start = unit[0] - segment.base
        try:
            # A wrong time would send a reader to a wrong offset without anyone noticing.
            limit = min(start + unit[1], segment.committed)
            check_record(segment.view, start, limit, unit[0], self._log.check_level)
        except CorruptRecord as error:
            raise self._named(error) from error
        sys_flag = SIZE.unpack_from(segment.view, start + SYS_FLAG_AT)[0]
        shift = 12 if sys_flag & BORN_HOST_V6 else 0
        return int(TIME.unpack_from(segment.view, start + STORE_TIME_AT + shift)[0])

    def offset_by_time(self, topic: bytes, queue_id: int, timestamp_ms: int) -> int:
        """First offset stored at or after a time; the end when there is none."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, self.end_of(queue)
        while low < high:
            middle = (low + high) // 2
            stored_ms = self.store_time(queue, middle)
            if stored_ms is not None and stored_ms < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def query(
        self, topic: bytes, key: bytes, count_max: int, begin_ms: int, end_ms: int
    ) -> list[MessageRecord]:
        """Messages with this key or unique key, oldest first."""
        if self._index is None:
            return []
        count_max = min(count_max, self._config.index_query_max)
        times = (begin_ms, end_ms)
        found: list[MessageRecord] = []
        # Hashes collide: look at the records themselves, and at more of them until it is enough.
        seen, asked = 0, 4 * count_max
        while True:
            positions = self._positions(self._index, topic, key, asked, times)
            for position in positions[seen:]:
                if position < self._log.start or len(found) == count_max:
                    continue
                record = self.at(position)
                if record is None or not begin_ms <= record.store_timestamp <= end_ms:
                    continue
                if _has_key(record, topic, key):
                    found.append(record)
            if len(found) == count_max or len(positions) < asked:
                break
            seen, asked = len(positions), 8 * asked
        found.sort(key=lambda record: record.physical_offset)
        return found

    def _positions(
        self, index: MessageIndex, topic: bytes, key: bytes, count: int, times: tuple[int, int]
    ) -> list[int]:
        """Candidates by hash. Several files may be damaged: each healing starts at an older one."""
        while True:
            try:
                return index.query(topic, key, count, *times)
            except IndexDamaged as damage:
                self._heal_index(damage.position)

    def _gather(self, units: bytes, queue_offset: int) -> bytes:
        spans = spans_of(self._log, units, self._cold_below())
        try:
            return gather_records(spans, units, queue_offset, self._log.check_level | DAMAGE_ONLY)
        except CorruptRecord as error:
            raise self._named(error) from error

    def _cold_below(self) -> int:
        return self._log.position - self._config.hot_window_size

    def _healed(self, queue: ConsumeQueue, read: Callable[[], Result]) -> Result:
        try:
            return read()
        except QueueDamaged:
            self._heal_queue(queue)
            return read()

    def _named(self, error: CorruptRecord) -> CorruptRecord:
        base = error.position - error.position % self._log.segments.size
        path = f"{COMMIT_LOG_DIR}/{segment_name(base)}"
        return CorruptRecord(path, error.position, error.reason)


def _corrected(offset: int, low: int, high: int) -> tuple[GetStatus, int] | None:
    """Status and next offset when nothing can be read at `offset` (never back to 0 by mistake)."""
    if high == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetStatus.OFFSET_OVERFLOW_BADLY, high
    return None


def _has_key(record: MessageRecord, topic: bytes, key: bytes) -> bool:
    if record.topic.encode("ascii") != topic:
        return False
    properties = record.properties
    wanted = key.decode("utf-8", "replace")
    return wanted == properties.get(UNIQ_KEY) or wanted in properties.get(KEYS, "").split(
        KEY_SEPARATOR
    )
