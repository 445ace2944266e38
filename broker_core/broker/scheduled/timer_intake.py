"""Reads the timer topic's queue and enters waiting messages and recalls.

Owns the read offset and the number of waiting messages per topic. Entries depend on the records
only, so that reading a part of the queue again adds the same entries.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker_core.broker.scheduled.delayed_message import waiting_position
from broker_core.broker.scheduled.timer_message import (
    PRECISION_MS,
    TIMER_QUEUE,
    is_recall,
    property_bytes,
    recall_text,
    recalled_key,
    stored_due_ms,
    wake_ms,
)
from broker_core.broker.scheduled.timer_runs import PendingTimers, recall_entry, wake_entry
from broker_core.broker.tables.broker_stats import Histogram
from broker_core.codec.records.column_names import PHYSICAL_OFFSET, PROPERTIES, STORE_TIMESTAMP
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.topic_name import TIMER_TOPIC
from broker_core.errors import CorruptRecord
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

_log = logging.getLogger(__name__)

# Bounds the work; a unique key normally has one message.
QUERY_COUNT: Final = 64
READ_COUNT_MAX: Final = 512
READ_SIZE_MAX: Final = 1 << 20

_WANTED: Final = PROPERTIES | PHYSICAL_OFFSET | STORE_TIMESTAMP


class Recalled(NamedTuple):
    """The recall record, and how many waiting messages it cancels."""

    result: PutResult
    message_count: int


class OtherBroker(NamedTuple):
    """Another broker has delivered all messages below `until_offset` that were due before
    `read_ms`.
    """

    read_ms: int
    until_offset: int


class TimerIntake:
    """Event loop only. Records older than `roll_after_ms` are rolled."""

    def __init__(self, store: MessageStore, pending: PendingTimers, roll_after_ms: int) -> None:
        self._store = store
        self._pending = pending
        self._roll_after_ms = roll_after_ms
        self.offset = 0
        self.by_topic: dict[str, int] = {}
        # While loading: ascending positions of ended records in the unread part of the queue.
        self.ended: array[int] = array("q")
        self.other_broker: OtherBroker | None = None
        # Recalls entered when they were stored: position -> topics of the cancelled messages.
        self._entered: dict[int, list[str]] = {}
        # For the metrics.
        self.entered_count = 0
        self._delays_s: Histogram | None = None

    def set_roll_after(self, roll_after_ms: int) -> None:
        """Use another age for records that are read from now on."""
        self._roll_after_ms = roll_after_ms

    def count_delays(self, delays_s: Histogram) -> None:
        """Add the delay of every message that is read from now on."""
        self._delays_s = delays_s

    @property
    def behind(self) -> int:
        """Number of unread entries of the queue."""
        return max(self._store.offsets(TIMER_TOPIC, TIMER_QUEUE)[1] - self.offset, 0)

    @property
    def counts_at_offset(self) -> dict[str, int]:
        """Waiting messages by topic, of the queue up to `offset`."""
        counts = dict(self.by_topic)
        for topics in self._entered.values():
            for topic in topics:
                counts[topic] = counts.get(topic, 0) + 1
        return counts

    def count_ended(self, topic: str) -> None:
        """Count one waiting message less."""
        # Below 0 for a moment, if it was recalled before it was read.
        self._count(topic, -1)

    def _count(self, topic: str, change: int) -> None:
        count = self.by_topic.get(topic, 0) + change
        if count:
            self.by_topic[topic] = count
        else:
            self.by_topic.pop(topic, None)

    # The queue

    def take(self, count_max: int = READ_COUNT_MAX) -> bool:
        """Read a slice of the queue; False when it is empty."""
        low, _ = self._store.offsets(TIMER_TOPIC, TIMER_QUEUE)
        # Records below were deleted by retention; waiting ones were entered before.
        self.offset = max(self.offset, low)
        count, size = 0, 0
        for _, record_size, _ in self._store.units(
            TIMER_TOPIC, TIMER_QUEUE, self.offset, min(count_max, READ_COUNT_MAX)
        ):
            size += record_size
            if count and size > READ_SIZE_MAX:
                break
            count += 1
        if count == 0:
            return False
        try:
            self._enter(self.offset, count)
        except CorruptRecord as error:
            if count > 1:
                return self.take(1)
            self._give_up(self.offset, str(error))
        self.offset += count
        return True

    def _enter(self, start: int, count: int) -> None:
        columns = self._store.read_columns(TIMER_TOPIC, TIMER_QUEUE, start, start + count, _WANTED)
        buffer, ends, _ = columns["properties"]
        texts = bytes(buffer)
        places = memoryview(ends).cast("i")
        positions = memoryview(columns["physical_offset"]).cast("q")
        times = memoryview(columns["store_timestamp"]).cast("q")
        for row in range(count):
            text = texts[places[row] : places[row + 1]]
            self._enter_one(start + row, positions[row], times[row], text)

    def _enter_one(self, offset: int, position: int, stored_ms: int, text: bytes) -> None:
        if is_recall(text):
            self._enter_recall(position, text)
            return
        due_ms = stored_due_ms(text)
        if due_ms is None:
            self._give_up(offset, "it does not say when it is due")
            return
        other = self.other_broker
        if other is not None and offset < other.until_offset and due_ms <= other.read_ms:
            return
        if self._has_ended(position):
            return
        self._pending.add(wake_entry(wake_ms(due_ms, stored_ms, self._roll_after_ms), position))
        self.entered_count += 1
        if self._delays_s is not None:
            self._delays_s.add(max(due_ms - stored_ms, 0) / 1000)
        topic = property_bytes(text, b"REAL_TOPIC\x01").decode("utf-8", "replace")
        self._count(topic, 1)

    def _has_ended(self, position: int) -> bool:
        at = bisect_left(self.ended, position)
        return at < len(self.ended) and self.ended[at] == position

    def _give_up(self, offset: int, reason: str) -> None:
        _log.error("timer message %d can never be delivered and is skipped: %s", offset, reason)

    def settle(self) -> None:
        """Reset the counts when nothing waits: some messages end without a known topic."""
        if self.by_topic and not len(self._pending) and not self.behind and not self._entered:
            self.by_topic.clear()

    # Recalls

    def recall(self, topic: str, unique_key: str, due_ms: int, now_ms: int) -> Recalled:
        """Store a recall. Not durable yet.

        It takes effect at once, even if the message itself is not read yet.
        """
        count = 0
        result: PutResult | None = None
        for record in self._waiting(topic, unique_key, now_ms):
            result = self._append_recall(topic, unique_key, due_ms, now_ms, record.physical_offset)
            if not result.ok:
                return Recalled(result, count)
            self._take_back(record, result.position)
            count += 1
        if result is None:
            result = self._append_recall(topic, unique_key, due_ms, now_ms, None)
        return Recalled(result, count)

    def _append_recall(
        self, topic: str, unique_key: str, due_ms: int, now_ms: int, position: int | None
    ) -> PutResult:
        return self._store.append_text(
            TIMER_TOPIC,
            TIMER_QUEUE,
            b"0",
            recall_text(topic, unique_key, due_ms),
            born_timestamp=now_ms,
            born_host=self._store.store_host,
            prepared_offset=0 if position is None else ~position,
        )

    def _waiting(self, topic: str, unique_key: str, now_ms: int) -> Iterator[MessageRecord]:
        """Waiting records with this key. They are not due yet, so none was delivered."""
        found = self._store.query(TIMER_TOPIC, unique_key, QUERY_COUNT)
        ended = {waiting_position(record.prepared_transaction_offset) for record in found}
        for record in found:
            text = record.property_text
            due_ms = stored_due_ms(text)
            is_of_topic = property_bytes(text, b"REAL_TOPIC\x01") == topic.encode()
            if due_ms is None or due_ms <= now_ms or is_recall(text) or not is_of_topic:
                continue
            if record.physical_offset not in ended:
                yield record

    def _take_back(self, record: MessageRecord, recall_position: int | None) -> None:
        due_ms = stored_due_ms(record.property_text)
        if due_ms is None:
            return
        wake = wake_ms(due_ms, record.store_timestamp, self._roll_after_ms)
        self._pending.add(recall_entry(wake, record.physical_offset))
        text = record.property_text
        topic = property_bytes(text, b"REAL_TOPIC\x01").decode("utf-8", "replace")
        self.count_ended(topic)
        if recall_position is not None:
            self._entered.setdefault(recall_position, []).append(topic)

    def _enter_recall(self, position: int, text: bytes) -> None:
        if self._entered.pop(position, None) is not None:
            return
        recall = self._store.message_at(position)
        if recall is None:
            return
        target = waiting_position(recall.prepared_transaction_offset)
        if target is not None:
            if not self._has_ended(target):
                self._take_back_at(target)
            return
        # Stored by another broker, or before its message was read.
        topic, unique_key = recalled_key(text)
        for record in self._waiting(topic, unique_key, recall.store_timestamp - PRECISION_MS):
            if record.physical_offset < position and not self._has_ended(record.physical_offset):
                self._take_back(record, None)

    def _take_back_at(self, target: int) -> None:
        try:
            record = self._store.message_at(target)
        except CorruptRecord as error:
            # It cannot be delivered either.
            _log.warning("a recalled message can no longer be read: %s", str(error))
            return
        if record is not None and record.topic == TIMER_TOPIC:
            self._take_back(record, None)
