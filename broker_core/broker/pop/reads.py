"""One pop: which queues it reads, what it takes from them, and how records are shown.

Reads the queues of the topic in turn, starting with a different one each time, then the group's
retry topic, which comes first every fifth time, so that neither starves. An orderly pop skips
queues with messages in flight; its retries come from the queue itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from broker_core.broker.pop.ledger import Lease, PopLedger
from broker_core.broker.pop.ledger_table import PopLedgers
from broker_core.broker.pop.pending import Place
from broker_core.broker.tables.offset_table import OffsetKey
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.records.message_properties import (
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    change_properties,
)
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.codec.records.record_layout import I32, QUEUE_OFFSET_AT
from broker_core.codec.sql.filter import SqlFilter
from broker_core.codec.wire.pop_handle import (
    FIRST_POP_TIME,
    ORDER_MARK,
    ORIGIN_GROUP,
    POP_CK,
    PopHandle,
    PopSpan,
    group_mark,
    pop_retry_topic,
    topic_type,
)
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX
from broker_core.errors import CorruptRecord, InvalidArgument
from broker_core.protocol_codes import GetStatus
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore
from broker_core.store.reads.message_reader import GetResult

# Every this many pops the retry topic comes first.
RETRY_FIRST_EVERY: Final = 5
# Reads of one pop with a selective filter; then the consumer asks again.
READS_MAX: Final = 16
ROTATIONS_MAX: Final = 100_000

_POP_CK_NAME: Final = f"{POP_CK}\x01".encode()


class PopAsk(NamedTuple):
    """The request of a consumer."""

    group: str
    topic: str
    queue_id: int
    """-1 for every queue."""
    queue_count: int
    count_max: int
    size_max: int
    invisible_ms: int
    from_end: bool = False
    is_order: bool = False
    attempt_id: str = ""
    tag_codes: frozenset[int] | None = None
    sql: SqlFilter | None = None

    @property
    def mark(self) -> int:
        """The mark in the handles of this pop."""
        return ORDER_MARK if self.is_order else group_mark(self.group)


class PopBatch:
    """The messages found so far."""

    __slots__ = ("count", "is_cut", "parts", "pop_time_ms", "rest", "size", "spans")

    def __init__(self, pop_time_ms: int) -> None:
        self.pop_time_ms = pop_time_ms
        self.parts: list[bytes | memoryview] = []
        self.spans: list[PopSpan] = []
        self.count = 0
        self.size = 0
        self.rest = 0
        """Messages that remain in the queues that were read."""
        self.is_cut = False
        """Whether the read stopped early without a message."""

    def add(self, records: bytes | memoryview, span: PopSpan) -> None:
        """Add messages of one queue, after earlier ones of it."""
        self.parts.append(records)
        before = self.spans[-1] if self.spans else None
        if before is not None and before[:2] == span[:2]:
            # An answer lists each queue once.
            offsets = [*before.offsets, *span.offsets]
            counts = {**before.counts, **span.counts}
            self.spans[-1] = before._replace(offsets=offsets, counts=counts)
        else:
            self.spans.append(span)
        self.count += len(span.offsets)
        self.size += len(records)


class PopReads:
    """Event loop only. Reads `store`, takes leases from `ledgers`."""

    def __init__(
        self,
        *,
        broker_name: str,
        store: MessageStore,
        topics: TopicTable,
        ledgers: PopLedgers,
        clock: Clock,
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._ledgers = ledgers
        self._clock = clock
        # Pops of a group in a topic so far; selects the first queue.
        self._turns: dict[tuple[str, str], int] = {}

    def take(self, ask: PopAsk, place: Place = None) -> PopBatch:
        """Take messages, at most as many as requested.

        A held pop reads only the queue that has changed.
        """
        batch = PopBatch(self._clock.wall_ms())
        damage: CorruptRecord | None = None
        for key in self._queues(ask) if place is None else self._queues_at(ask, place):
            ledger = self._ledgers.open(key, from_end=ask.from_end)
            if not self._is_locked(ask, ledger) and self._fits(ask, ledger, batch):
                try:
                    self._take_from(ask, key, ledger, batch)
                except CorruptRecord as error:
                    # The other queues have not changed.
                    damage = error
            batch.rest += self._rest(key, ledger)
            if self._is_full(ask, batch):
                break
        if damage is not None and not batch.count:
            raise damage
        return batch

    def peek(self, ask: PopAsk) -> PopBatch:
        """The messages that `take` would take, without taking them."""
        batch = PopBatch(self._clock.wall_ms())
        for key in self._queues(ask):
            ledger = self._ledgers.open(key, from_end=ask.from_end)
            if not self._is_full(ask, batch):
                found = self._get(ask, key, ledger.next_offset, ask.count_max - batch.count)
                if found.status is GetStatus.FOUND:
                    messages = [each for each in found.messages() if _is_of(each, ask)]
                    offsets = [message.queue_offset for message in messages]
                    if messages:
                        records = self._shown(ask, key, offsets[0], batch, messages)
                        batch.add(records, PopSpan(key[1], key[2], offsets[0], offsets))
            batch.rest += self._rest(key, ledger)
        return batch

    def has_ready(self, ask: PopAsk) -> bool:
        """Whether `take` would find messages, filters aside."""
        for key in self._queues(ask):
            ledger = self._ledgers.open(key, from_end=ask.from_end)
            if self._is_locked(ask, ledger) or not self._ledgers.room(ledger):
                continue
            if ledger.given_again(ask.attempt_id, 1) or self._rest(key, ledger) > 0:
                return True
        return False

    def _queues(self, ask: PopAsk) -> Iterator[OffsetKey]:
        turn = self._turns.get((ask.group, ask.topic), 0)
        if len(self._turns) >= ROTATIONS_MAX:
            self._turns.clear()
        self._turns[ask.group, ask.topic] = turn + 1
        numbers: Sequence[int] = (ask.queue_id,)
        if ask.queue_id < 0:
            numbers = [(turn + n) % ask.queue_count for n in range(ask.queue_count)]
        own = [(ask.group, ask.topic, number) for number in numbers]
        again = [] if ask.is_order else self._retry_queues(ask)
        return iter(again + own if turn % RETRY_FIRST_EVERY == 0 else own + again)

    def _retry_queues(self, ask: PopAsk) -> list[OffsetKey]:
        name = pop_retry_topic(ask.group, ask.topic)
        config = None if name == ask.topic else self._topics.find(name)
        if config is None:
            return []
        return [(ask.group, name, number) for number in range(config.read_queue_count)]

    @staticmethod
    def _queues_at(ask: PopAsk, place: tuple[str, int]) -> list[OffsetKey]:
        topic, queue_id = place
        if topic != ask.topic:
            return [] if ask.is_order else [(ask.group, topic, queue_id)]
        is_wanted = queue_id < ask.queue_count and ask.queue_id in (-1, queue_id)
        return [(ask.group, topic, queue_id)] if is_wanted else []

    @staticmethod
    def _fits(ask: PopAsk, ledger: PopLedger, batch: PopBatch) -> bool:
        """Whether redelivered messages of this queue fit into the answer.

        All messages of an answer have one pop time, and redelivered ones need a new one. The clock
        gives it unless it was set back or has not moved since. Then these queues come first in this
        answer, or in the next.
        """
        if not ledger.given_again(ask.attempt_id, 1):
            return True
        pop_time_ms = ledger.pop_time_after(batch.pop_time_ms)
        if pop_time_ms > batch.pop_time_ms and not batch.count:
            batch.pop_time_ms = pop_time_ms
        return pop_time_ms <= batch.pop_time_ms

    @staticmethod
    def _is_full(ask: PopAsk, batch: PopBatch) -> bool:
        return batch.count >= ask.count_max or (batch.count > 0 and batch.size >= ask.size_max)

    @staticmethod
    def _is_locked(ask: PopAsk, ledger: PopLedger, own: Lease | None = None) -> bool:
        """Whether other consumers have messages of an orderly queue."""
        if own is not None:
            return ask.is_order and ledger.in_flight_count != own.left
        return ask.is_order and ledger.is_locked(ask.attempt_id)

    def _rest(self, key: OffsetKey, ledger: PopLedger) -> int:
        return max(self._store.offsets(key[1], key[2])[1] - ledger.next_offset, 0)

    def _take_from(self, ask: PopAsk, key: OffsetKey, ledger: PopLedger, batch: PopBatch) -> None:
        again = ledger.given_again(ask.attempt_id, ask.count_max - batch.count)
        own: Lease | None = None
        if again:
            own = self._take_again(ask, key, ledger, again, batch)
            if own is None or ledger.in_flight_count != own.left or self._is_full(ask, batch):
                # Later messages of the queue must not come before the rest of these.
                return
        for _ in range(READS_MAX):
            count = min(ask.count_max - batch.count, self._ledgers.room(ledger))
            if count <= 0:
                return
            asked = ledger.next_offset
            found = self._get(ask, key, asked, count, ask.size_max - batch.size)
            # A read may dispatch new messages, which serves held pops.
            if self._is_locked(ask, ledger, own):
                return
            if ledger.next_offset != asked:
                continue
            if found.status is GetStatus.FOUND:
                if self._give(ask, key, ledger, found, batch):
                    return
            elif found.status is GetStatus.OFFSET_TOO_SMALL:
                self._ledgers.forget_before(key, ledger, found.min_offset)
            elif found.next_offset > ledger.next_offset and found.status in _PASSED:
                ledger.skip_to(found.next_offset)
                self._ledgers.settle(key, ledger)
            else:
                return
            if ledger.next_offset >= found.max_offset:
                return
        batch.is_cut = True

    def _get(
        self, ask: PopAsk, key: OffsetKey, offset: int, count: int, size: int = 0
    ) -> GetResult:
        return self._store.get(
            key[1],
            key[2],
            offset,
            count,
            size_max=max(size, 1) if size else ask.size_max,
            tag_codes=ask.tag_codes,
            record_filter=ask.sql,
        )

    def _give(
        self, ask: PopAsk, key: OffsetKey, ledger: PopLedger, found: GetResult, batch: PopBatch
    ) -> bool:
        """Take the messages found, without acknowledged and foreign ones; False if none is left."""
        offsets = _offsets(found.records)
        wanted = ledger.unacknowledged(offsets)
        records = found.records
        if len(wanted) < len(offsets) or key[1] != ask.topic or _POP_CK_NAME in records:
            messages = [
                message
                for message in found.messages()
                if message.queue_offset in wanted and _is_of(message, ask)
            ]
            wanted = [message.queue_offset for message in messages]
            start = wanted[0] if wanted else 0
            records = self._shown(ask, key, start, batch, messages)
        lease = self._lease(ask, batch)
        self._ledgers.take(key, ledger, lease, wanted, found.next_offset)
        if wanted:
            batch.add(records, PopSpan(key[1], key[2], wanted[0], wanted))
        return bool(wanted)

    def _take_again(
        self,
        ask: PopAsk,
        key: OffsetKey,
        ledger: PopLedger,
        offsets: Sequence[int],
        batch: PopBatch,
    ) -> Lease | None:
        """Lease of redelivered messages; None when none is left."""
        found: list[MessageRecord] = []
        size = batch.size
        for offset in offsets:
            messages = self._store.get(key[1], key[2], offset, 1).messages()
            if not messages or messages[0].queue_offset != offset:
                # Deleted by retention.
                self._ledgers.done(key, ledger, offset)
                continue
            size += len(messages[0].body)
            if found and size > ask.size_max:
                break
            found.append(messages[0])
        # A read may dispatch new messages, which serves held pops.
        still = set(ledger.given_again(ask.attempt_id, len(offsets)))
        found = [message for message in found if message.queue_offset in still]
        if not found or self._is_locked(ask, ledger):
            return None
        wanted = [message.queue_offset for message in found]
        lease = self._lease(ask, batch)
        self._ledgers.take_again(key, ledger, lease, wanted)
        counts = {offset: ledger.tries_of(offset) for offset in wanted}
        records = self._shown(ask, key, wanted[0], batch, found)
        batch.add(records, PopSpan(key[1], key[2], wanted[0], wanted, counts))
        return lease

    def _lease(self, ask: PopAsk, batch: PopBatch) -> Lease:
        deadline = self._clock.monotonic() + ask.invisible_ms / 1000
        return Lease(batch.pop_time_ms, deadline, is_order=ask.is_order, attempt_id=ask.attempt_id)

    def _shown(
        self,
        ask: PopAsk,
        key: OffsetKey,
        start: int,
        batch: PopBatch,
        messages: Sequence[MessageRecord],
    ) -> bytes:
        """Records as the consumer sees them.

        A retry shows its original topic, so it needs a handle in the message that says where it
        is. Handles that a producer put into a message are removed.
        """
        parts = []
        for message in messages:
            changes = {POP_CK: ""}
            if key[1] != ask.topic:
                handle = PopHandle(
                    start,
                    batch.pop_time_ms,
                    ask.invisible_ms,
                    ask.mark,
                    topic_type(key[1]),
                    self._broker_name,
                    key[2],
                    message.queue_offset,
                )
                changes = {POP_CK: handle.text()}
                message = message._replace(topic=ask.topic)
            parts.append(_encoded(message, changes))
        return b"".join(parts)


_OF_RETRIES: Final = (ORIGIN_GROUP, ORIGIN_MESSAGE_ID, RETRY_TOPIC, FIRST_POP_TIME)
_PASSED: Final = frozenset({GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})


def _encoded(message: MessageRecord, changes: Mapping[str, str]) -> bytes:
    text = change_properties(message.property_text, changes)
    try:
        return encode_record(message._replace(property_text=text), append_crc=False)
    except InvalidArgument:
        # No room for the handle: drop what the retry has added, which is larger.
        text = change_properties(text, dict.fromkeys(_OF_RETRIES, ""))
        return encode_record(message._replace(property_text=text), append_crc=False)


def _is_of(message: MessageRecord, ask: PopAsk) -> bool:
    """Two groups may share a retry topic, because names may contain the separator."""
    if not message.topic.startswith(RETRY_TOPIC_PREFIX) or message.topic == ask.topic:
        return True
    properties = message.properties
    if FIRST_POP_TIME not in properties:
        # Sent back by the group that the whole name names.
        return False
    is_groups = properties.get(ORIGIN_GROUP, ask.group) == ask.group
    return is_groups and properties.get(RETRY_TOPIC, ask.topic) == ask.topic


def _offsets(records: bytes | memoryview) -> list[int]:
    """Queue offsets of records, back to back."""
    found = []
    start = 0
    while start < len(records):
        at = start + QUEUE_OFFSET_AT
        found.append(int.from_bytes(records[at : at + 8], "big"))
        start += I32.unpack_from(records, start)[0]
    return found
