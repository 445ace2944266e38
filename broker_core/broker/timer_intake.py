"""Reads the timer topic's queue and enters what it finds: messages that wait, and recalls.

Owns how far the queue was read and how many messages wait for each topic. Whatever it enters is a
function of the records alone, so that reading a part of the queue once more enters the same.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker_core.broker.metric_tallies import Histogram
from broker_core.broker.parked_message import parked_position
from broker_core.broker.system_topics import TIMER_TOPIC
from broker_core.broker.timer_message import (
    PRECISION_MS,
    TIMER_QUEUE,
    is_recall,
    property_bytes,
    recall_text,
    recalled_key,
    stored_due_ms,
    wake_ms,
)
from broker_core.broker.timer_runs import PendingTimers, recall_entry, wake_entry
from broker_core.codec.message_record import MessageRecord
from broker_core.codec.record_columns import PHYSICAL_OFFSET, PROPERTIES, STORE_TIMESTAMP
from broker_core.errors import CorruptRecord
from broker_core.store.message_store import MessageStore
from broker_core.store.put_result import PutResult

_log = logging.getLogger(__name__)

# More messages of one unique key are no accident.
QUERY_COUNT: Final = 64
READ_COUNT_MAX: Final = 512
READ_SIZE_MAX: Final = 1 << 20

_WANTED: Final = PROPERTIES | PHYSICAL_OFFSET | STORE_TIMESTAMP


class Recalled(NamedTuple):
    """The record that says so, and how many waiting messages it concerns."""

    result: PutResult
    message_count: int


class OtherBroker(NamedTuple):
    """How far another broker was: it has delivered what was due before, of these offsets."""

    read_ms: int
    until_offset: int


class TimerIntake:
    """Event loop only. `roll_after_ms` is how old a record may become before it is stored anew."""

    def __init__(self, store: MessageStore, pending: PendingTimers, roll_after_ms: int) -> None:
        self._store = store
        self._pending = pending
        self._roll_after_ms = roll_after_ms
        self.offset = 0
        self.by_topic: dict[str, int] = {}
        # While loading: positions, ascending, of records in the queue to read that have ended.
        self.ended: array[int] = array("q")
        self.other_broker: OtherBroker | None = None
        # Recalls that were entered when they were stored: position -> the topics they took from.
        self._entered: dict[int, list[str]] = {}
        self.unreadable_count = 0
        # Since the start, for the metrics; how far ahead, only if anybody wants to know.
        self.entered_count = 0
        self.delays_s: Histogram | None = None

    def set_roll_after(self, roll_after_ms: int) -> None:
        """Another time, for what is read from now on."""
        self._roll_after_ms = roll_after_ms

    @property
    def behind(self) -> int:
        """Entries of the queue that were not read yet."""
        return max(self._store.offsets(TIMER_TOPIC, TIMER_QUEUE)[1] - self.offset, 0)

    @property
    def counts_at_offset(self) -> dict[str, int]:
        """Waiting messages by topic, as the queue up to `offset` has them."""
        counts = dict(self.by_topic)
        for topics in self._entered.values():
            for topic in topics:
                counts[topic] = counts.get(topic, 0) + 1
        return counts

    def count_ended(self, topic: str) -> None:
        """One message less waits."""
        # Below 0 for a moment, if it was taken back before its turn to be read came.
        self._count(topic, -1)

    def _count(self, topic: str, change: int) -> None:
        count = self.by_topic.get(topic, 0) + change
        if count:
            self.by_topic[topic] = count
        else:
            self.by_topic.pop(topic, None)

    # The queue

    def take(self, count_max: int = READ_COUNT_MAX) -> bool:
        """Read a slice of the queue; False when there was nothing."""
        low, _ = self._store.offsets(TIMER_TOPIC, TIMER_QUEUE)
        # Below are records that retention has taken; those that waited were entered before.
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
        if self.delays_s is not None:
            self.delays_s.add(max(due_ms - stored_ms, 0) / 1000)
        topic = property_bytes(text, b"REAL_TOPIC\x01").decode("utf-8", "replace")
        self._count(topic, 1)

    def _has_ended(self, position: int) -> bool:
        at = bisect_left(self.ended, position)
        return at < len(self.ended) and self.ended[at] == position

    def _give_up(self, offset: int, reason: str) -> None:
        _log.error("timer message %d can never be delivered, left out: %s", offset, reason)
        self.unreadable_count += 1

    def settle(self) -> None:
        """Nothing waits: forget counts of messages that went without saying their topic."""
        if self.by_topic and not len(self._pending) and not self.behind and not self._entered:
            self.by_topic.clear()

    # Recalls

    def recall(self, topic: str, unique_key: str, due_ms: int, now_ms: int) -> Recalled:
        """Store that a message was taken back. Not durable yet.

        It counts from now on, also when the message itself cannot be read yet.
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
        """Records with this key that wait. Their time has not come, so none was delivered."""
        found = self._store.query(TIMER_TOPIC, unique_key, QUERY_COUNT)
        ended = {parked_position(record.prepared_transaction_offset) for record in found}
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
        target = parked_position(recall.prepared_transaction_offset)
        if target is not None:
            if not self._has_ended(target):
                self._take_back_at(target)
            return
        # Stored by another broker, or before its message could be read.
        topic, unique_key = recalled_key(text)
        for record in self._waiting(topic, unique_key, recall.store_timestamp - PRECISION_MS):
            if record.physical_offset < position and not self._has_ended(record.physical_offset):
                self._take_back(record, None)

    def _take_back_at(self, target: int) -> None:
        try:
            record = self._store.message_at(target)
        except CorruptRecord as error:
            # Nobody can deliver it either.
            _log.warning("a recalled message can no longer be read: %s", str(error))
            return
        if record is not None and record.topic == TIMER_TOPIC:
            self._take_back(record, None)
