"""Ends transactions: each half message is committed, rolled back or given up, exactly once.

The outcome and the fact that it happened are one record (see `half_message`): a commit is its copy,
a rollback is its op record. Decision and append happen in one turn of the event loop, so two
requests for one half cannot both win. The op record of a commit may be missing for a while; the
next start finds the copy. An outcome that cannot be stored is retried every second.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import Counter
from typing import Any, Final, NamedTuple

from broker_core.broker.redelivery import Redelivery
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.broker.timed_service import TICK_MS, ServiceRun, Timer, Timers, elapsed_ms
from broker_core.broker.transactions.half_message import (
    HALF_QUEUE,
    OP_TEXT,
    Half,
    committed,
    given_up,
    op_body,
    read_half,
    shortened,
)
from broker_core.broker.transactions.open_transactions import BEFORE_START, OpenTransactions
from broker_core.broker.transactions.progress import TransactionProgress
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.topic_name import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GIVEN_UP_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)
from broker_core.errors import CorruptRecord, MalformedRecord, RmqError
from broker_core.protocol_codes import PutStatus
from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import Worker
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

_log = logging.getLogger(__name__)

# Recent outcomes kept in memory for repeated requests.
ENDS_KEPT: Final = 10_000
# Verdicts that wait to be stored; beyond this number the checks ask for them again.
WANTED_MAX: Final = 10_000
_WANTED_AT_ONCE: Final = 64
# Bounds the work; a unique key normally has one message.
_QUERY_COUNT: Final = 64

_HALF_TOPIC: Final = TRANSACTION_HALF_TOPIC.encode()
_HOPELESS: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})


class Verdict(enum.Enum):
    """How a transaction ends."""

    COMMIT = "committed"
    ROLLBACK = "rolled back"
    GIVEN_UP = "given up"


class Ended(NamedTuple):
    """An outcome and its append."""

    verdict: Verdict
    result: PutResult


class Transactions:
    """Event loop only. Without `timers` and `worker` `start` needs a running event loop."""

    def __init__(
        self,
        *,
        store: MessageStore,
        offsets: OffsetTable,
        topics: TopicTable | None,
        table: JsonTable,
        clock: Clock,
        delay_level_max: int,
        stats: BrokerStats | None = None,
        timers: Timers | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._topics = topics
        self._table = table
        self._clock = clock
        self._delay_level_max = delay_level_max
        self._stats = stats
        self._copies = Redelivery(store, stats, shortened)
        self._run = ServiceRun("rmq-transactions", timers, worker)
        self._timers: Timers | None = None
        self._timer: Timer | None = None
        self._progress: TransactionProgress | None = None
        self._started_ms = 0
        self._ends: dict[int, Ended] = {}
        # Since the start, for the metrics.
        self.ended_counts: Counter[Verdict] = Counter()
        self._wanted: dict[int, Verdict] = {}
        # Half offset -> position of a copy whose op record is missing.
        self._without_op: dict[int, int] = {}
        self._arrivals: dict[asyncio.Future[None], int] = {}

    # Starting and stopping

    def start(self) -> None:
        """Find the open halves. On a master, before it serves."""
        if self._progress is not None:
            return
        self._timers, worker = self._run.begin()
        progress = TransactionProgress(
            store=self._store, offsets=self._offsets, table=self._table, worker=worker
        )
        with self._run.ended_by_failure():
            progress.load()
        self._progress = progress
        self._without_op = progress.without_op
        self._started_ms = elapsed_ms(self._clock)
        self._store.on_arrival(self._arrived)
        self._timer = self._timers.call_later(TICK_MS / 1000, self._tick)

    def stop(self) -> None:
        """Stop and save. The store must still be open."""
        if self._progress is None or self._timers is None:
            return
        self._timers = None
        if self._timer is not None:
            self._timer.cancel()
        self._note_without_op()
        self._progress.close(self._accounted_position())
        self._run.end()

    @property
    def is_running(self) -> bool:
        """Between `start` and `stop`."""
        return self._timers is not None and self._progress is not None

    @property
    def window(self) -> OpenTransactions:
        """The open halves; read-only but for the check counts."""
        assert self._progress is not None
        return self._progress.window

    def progress_object(self) -> dict[str, Any]:
        """State that a slave copies besides offsets and log; empty while this is not running."""
        if self._progress is None:
            return {}
        return self._progress.content(self._accounted_position())

    def note_checks(self) -> None:
        """Check counts of the window have changed."""
        assert self._progress is not None
        self._progress.note_checks()

    # Finding

    async def visible(self, offset: int) -> None:
        """Wait until the appended half at `offset` can be read."""
        if offset >= self.window.high:
            arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._arrivals[arrival] = offset
            try:
                await arrival
            finally:
                self._arrivals.pop(arrival, None)

    def half(self, offset: int) -> Half | None:
        """The half message at an offset; None when it has ended.

        A half that cannot be committed is ended here and logged.
        """
        try:
            units = self._store.units(TRANSACTION_HALF_TOPIC, HALF_QUEUE, offset, 1)
            record = self._store.message_at(units[0][0]) if units else None
            return None if record is None else read_half(record)
        except (CorruptRecord, MalformedRecord) as error:
            self._leave_out(offset, str(error))
            return None

    def waited_ms(self, offset: int) -> int:
        """How long an open half has waited here; very long if it came before the start."""
        return elapsed_ms(self._clock) - self.window.arrived_ms(offset)

    def age_ms(self, half: Half) -> int:
        """How long an open half has waited, independent of changes of the wall clock."""
        now_ms = elapsed_ms(self._clock)
        arrived_ms = self.window.arrived_ms(half.record.queue_offset)
        if arrived_ms != BEFORE_START:
            return now_ms - arrived_ms
        by_wall_ms = self._clock.wall_ms() - half.record.store_timestamp
        return max(by_wall_ms, now_ms - self._started_ms)

    # Ending

    def end(self, half: Half, verdict: Verdict) -> Ended:
        """End a transaction, or return how it has ended. A failed append leaves it open.

        The result is not durable yet: wait for it before answering.
        """
        offset = half.record.queue_offset
        if not self.window.is_open(offset):
            return self._ended(half)
        first = half.first_offset
        if first is not None and self._progress and first in self._progress.ended_before:
            # Another broker had stored the half again before the verdict on the first one came.
            result = self._append_op(offset)
            if result.ok:
                self.window.close(offset)
            return Ended(self._stored_verdict(half), result)
        wanted = self._wanted.get(offset, Verdict.GIVEN_UP)
        if wanted is not Verdict.GIVEN_UP:
            # The first verdict wins, although it is not stored yet.
            verdict = wanted
        result = self._append_outcome(half, verdict)
        if not result.ok:
            self._want(offset, verdict, result)
            return Ended(verdict, result)
        self._wanted.pop(offset, None)
        self.window.close(offset)
        self.ended_counts[verdict] += 1
        if self._stats is not None and self._stats.tallies is not None:
            took_ms = self._clock.wall_ms() - half.record.born_timestamp
            self._stats.tallies.finish_s.add(max(took_ms, 0) / 1000)
        ended = Ended(verdict, result)
        self._remember(offset, ended)
        if verdict is not Verdict.ROLLBACK and not self._append_op(offset).ok:
            self._without_op[offset] = result.position
        return ended

    def _append_outcome(self, half: Half, verdict: Verdict) -> PutResult:
        if verdict is Verdict.ROLLBACK:
            return self._append_op(half.record.queue_offset)
        if verdict is Verdict.COMMIT:
            now_ms = self._clock.wall_ms()
            return self._copies.append(committed(half, self._delay_level_max, now_ms))
        self._make_given_up_topic()
        return self._copies.append(given_up(half.record))

    def _make_given_up_topic(self) -> None:
        if self._topics is None or self._topics.find(TRANSACTION_GIVEN_UP_TOPIC) is not None:
            return
        try:
            self._topics.put(TopicConfig(TRANSACTION_GIVEN_UP_TOPIC, 1, 1))
        except RmqError as error:
            # Not fatal: the messages are found when the topic is created later.
            _log.warning("%s cannot be created: %s", TRANSACTION_GIVEN_UP_TOPIC, error)

    def _ended(self, half: Half) -> Ended:
        """The outcome of an ended transaction, from memory or from the store."""
        known = self._ends.get(half.record.queue_offset)
        if known is not None:
            return known
        return Ended(self._stored_verdict(half), PutResult(PutStatus.PUT_OK))

    def _stored_verdict(self, half: Half) -> Verdict:
        """The stored outcome of an ended half, if there is one."""
        places = {
            half.topic: Verdict.COMMIT,
            SCHEDULE_TOPIC: Verdict.COMMIT,
            TIMER_TOPIC: Verdict.COMMIT,
            TRANSACTION_GIVEN_UP_TOPIC: Verdict.GIVEN_UP,
        }
        for topic, verdict in places.items() if half.unique_key else ():
            for record in self._store.query(topic, half.unique_key, _QUERY_COUNT):
                if record.prepared_transaction_offset == half.record.physical_offset:
                    return verdict
        return Verdict.ROLLBACK

    def _remember(self, offset: int, ended: Ended) -> None:
        self._ends[offset] = ended
        if len(self._ends) > ENDS_KEPT:
            del self._ends[next(iter(self._ends))]

    def _want(self, offset: int, verdict: Verdict, result: PutResult) -> None:
        if offset in self._wanted:
            return
        _log.warning(
            "half message %d is not %s yet: %s %s",
            offset,
            verdict.value,
            result.status.name,
            result.remark,
        )
        if result.status not in _HOPELESS and len(self._wanted) < WANTED_MAX:
            self._wanted[offset] = verdict

    def _leave_out(self, offset: int, reason: str) -> None:
        if not self.window.close(offset):
            return
        _log.error("half message %d can never be committed and is skipped: %s", offset, reason)
        self._append_op(offset)

    # Appending

    def _append_op(self, offset: int) -> PutResult:
        return self._store.append_text(
            TRANSACTION_OP_TOPIC,
            HALF_QUEUE,
            op_body(offset),
            OP_TEXT,
            born_timestamp=self._clock.wall_ms(),
            born_host=self._store.store_host,
        )

    # Periodic work

    def _arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
        if topic != _HALF_TOPIC or queue_id != HALF_QUEUE or not self.is_running:
            return
        self.window.extend(max_offset, elapsed_ms(self._clock))
        for arrival, offset in self._arrivals.items():
            if offset < max_offset and not arrival.done():
                arrival.set_result(None)

    def _tick(self) -> None:
        if self._timers is None or self._progress is None:
            return
        self._timer = self._timers.call_later(TICK_MS / 1000, self._tick)
        try:
            self._close_removed()
            self._note_without_op()
            for offset, verdict in list(self._wanted.items())[:_WANTED_AT_ONCE]:
                self._end_wanted(offset, verdict)
            self._progress.save_when_due(self._accounted_position())
        except RmqError as error:
            _log.warning("transactions: %s", error)

    def _close_removed(self) -> None:
        low = self._store.offsets(TRANSACTION_HALF_TOPIC, HALF_QUEUE)[0]
        removed = self.window.close_below(low)
        if removed:
            _log.error("retention has removed %d half messages before they ended", removed)

    def _end_wanted(self, offset: int, verdict: Verdict) -> None:
        half = self.half(offset) if self.window.is_open(offset) else None
        if half is None:
            del self._wanted[offset]
        else:
            self.end(half, verdict)

    def _note_without_op(self) -> None:
        """Append missing op records, which other brokers rely on."""
        for offset in list(self._without_op):
            if not self._append_op(offset).ok:
                return
            del self._without_op[offset]

    def _accounted_position(self) -> int:
        """Copies below this position have their op records."""
        return min(self._without_op.values(), default=self._store.log_range[1])
