"""Delivers delayed messages and retries when they are due; one queue per delay level.

Owns one timer per level, for the first message of its queue; only that message's due time is in
memory. Due messages are appended in slices, so that the event loop serves requests in between. A
failed append is retried with exponential back-off; the order within a level is kept. Exactly once:
see `delay_progress`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from broker_core.broker.redelivery import Redelivery
from broker_core.broker.scheduled.delay_progress import DelayProgress
from broker_core.broker.scheduled.delayed_message import delivered, shortened
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.timed_service import (
    CLOCK_STEP_MS,
    SLICE_COUNT_MAX,
    SLICE_SIZE_MAX,
    TICK_MS,
    ServiceRun,
    Timer,
    Timers,
    back_off_ms,
    drift_ms,
    elapsed_ms,
)
from broker_core.codec.wire.bodies.topic_config import DataVersion
from broker_core.codec.wire.topic_name import SCHEDULE_TOPIC
from broker_core.errors import CorruptRecord, MalformedRecord, RmqError
from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import Worker
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_TOPIC: Final = SCHEDULE_TOPIC.encode()


class _Level:
    """One queue of the delay topic."""

    __slots__ = (
        "failures",
        "held_due",
        "held_from",
        "held_until",
        "in_line",
        "max_offset",
        "queue_id",
        "single_until",
        "timer",
    )

    def __init__(self, queue_id: int, max_offset: int) -> None:
        self.queue_id = queue_id
        self.max_offset = max_offset
        self.timer: Timer | None = None
        self.in_line = False
        self.failures = 0
        # A record below this offset cannot be read: read one by one to find it.
        self.single_until = 0
        # Messages from `held_from` on arrived while the wall clock was behind the store's clock:
        # those below `held_until` are due at `held_due` (monotonic milliseconds).
        self.held_from: int | None = None
        self.held_until = 0
        self.held_due = 0

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class DelayedDelivery:
    """Event loop only. `levels` are the delays in milliseconds, level 1 first."""

    def __init__(
        self,
        *,
        store: MessageStore,
        table: JsonTable,
        clock: Clock,
        levels: Sequence[int],
        stats: BrokerStats | None = None,
        save_interval_ms: int = TICK_MS,
        timers: Timers | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._store = store
        self._table = table
        self._clock = clock
        self._levels_ms = tuple(levels)
        self._copies = Redelivery(store, stats, shortened)
        self._save_interval_ms = save_interval_ms
        # The tick also finds a wall clock that was set, so it does not wait for a long interval.
        self._tick_s = min(save_interval_ms, TICK_MS) / 1000
        self._saved_at_ms = 0
        self._run = ServiceRun("rmq-delay", timers, worker)
        self._timers: Timers | None = None
        self._progress: DelayProgress | None = None
        self._levels: dict[int, _Level] = {}
        self._line: deque[_Level] = deque()
        self._has_turn = False
        self._tick_timer: Timer | None = None
        self._drift_ms = 0
        self.delivered_count = 0

    # Starting and stopping

    def start(self) -> None:
        """Find the pending messages and deliver them when due. On a master, before it serves.

        Without `timers` this needs a running event loop.
        """
        if self._progress is not None:
            return
        self._timers, worker = self._run.begin()
        progress = DelayProgress(
            store=self._store, table=self._table, clock=self._clock, worker=worker
        )
        with self._run.ended_by_failure():
            progress.load()
        self._progress = progress
        self._drift_ms = drift_ms(self._clock)
        self._saved_at_ms = elapsed_ms(self._clock)
        self._store.on_arrival(self._arrived)
        for topic, queue_id in self._store.queues():
            if topic == SCHEDULE_TOPIC:
                self._look(self._level(queue_id))
        self._tick_timer = self._timers.call_later(self._tick_s, self._tick)

    def stop(self) -> None:
        """Stop and save. The store must still be open."""
        if self._progress is None or self._timers is None:
            return
        self._timers = None
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        for level in self._levels.values():
            level.stop_timer()
        self._line.clear()
        self._progress.close()
        self._run.end()

    @property
    def offsets(self) -> dict[int, int]:
        """Next offset to deliver by delay level, as `delayOffset.json` has it."""
        return {} if self._progress is None else self._progress.by_level

    @property
    def version(self) -> DataVersion:
        """Data version of the saved table, for slaves."""
        return DataVersion() if self._progress is None else self._progress.version

    @property
    def pending_count(self) -> int:
        """Number of pending messages in all levels."""
        if self._progress is None:
            return 0
        progress = self._progress
        return sum(level.max_offset - progress.offset(q) for q, level in self._levels.items())

    @property
    def is_late(self) -> bool:
        """Whether messages that are due are not delivered yet."""
        # Reading dispatches what was appended, which may add a level.
        waits = [self._head_wait_ms(level) for level in list(self._levels.values())]
        return any(wait_ms is not None and wait_ms <= 0 for wait_ms in waits)

    # Waiting

    def _level(self, queue_id: int) -> _Level:
        level = self._levels.get(queue_id)
        if level is None:
            high = self._store.offsets(SCHEDULE_TOPIC, queue_id)[1]
            # Reading dispatches what was appended, which may have added the level.
            level = self._levels.setdefault(queue_id, _Level(queue_id, high))
        return level

    def _arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
        if topic != _TOPIC or self._timers is None:
            return
        level = self._levels.get(queue_id)
        if level is None:
            level = self._levels[queue_id] = _Level(queue_id, 0)
        first_new, level.max_offset = level.max_offset, max_offset
        try:
            self._note_clock_behind(level, first_new)
        except RmqError as error:
            self._back_off(level, str(error))
            return
        if level.timer is None and not level.in_line:
            self._look(level)

    def _look(self, level: _Level) -> None:
        """Set the timer for the first message of a level."""
        if self._timers is None:
            return
        level.stop_timer()
        try:
            wait_ms = self._head_wait_ms(level)
        except RmqError as error:
            self._back_off(level, str(error))
            return
        if wait_ms is None or level.in_line:
            return
        # Reading dispatches what was appended, which may have set a timer of this level.
        level.stop_timer()
        if wait_ms > 0:
            level.timer = self._timers.call_later(wait_ms / 1000, self._look, level)
            return
        level.in_line = True
        self._line.append(level)
        self._take_turn()

    def _head_wait_ms(self, level: _Level) -> int | None:
        assert self._progress is not None
        offset = self._progress.offset(level.queue_id)
        units = self._store.units(SCHEDULE_TOPIC, level.queue_id, offset, 1)
        return self._wait_ms(level, offset, units[0][2]) if units else None

    def _wait_ms(self, level: _Level, offset: int, due_ms: int) -> int:
        """How long the message at `offset` has to wait, by the present clock."""
        wait_ms = due_ms - self._clock.wall_ms()
        if wait_ms <= 0:
            return wait_ms
        delay_ms = self._delay_ms(level, offset, due_ms)
        if wait_ms <= delay_ms:
            return wait_ms
        # Stored in the future: the wall clock was set back, or the level has become shorter.
        # Earlier messages are due now.
        if level.held_from is None or offset < level.held_from:
            return 0
        now_ms = elapsed_ms(self._clock)
        if offset >= level.held_until:
            level.held_until = level.max_offset
            level.held_due = now_ms + delay_ms
        return level.held_due - now_ms

    def _note_clock_behind(self, level: _Level, first_new: int) -> None:
        """Make messages wait that arrive while the wall clock is behind.

        The store's clock never goes back, so these messages all get the same store time and would
        look overdue: retries would follow each other without a pause. They wait for their delay by
        the monotonic clock, twice the delay at most.
        """
        last = level.max_offset - 1
        units = self._store.units(SCHEDULE_TOPIC, level.queue_id, last, 1)
        if not units:
            return
        due_ms = units[0][2]
        wait_ms = due_ms - self._clock.wall_ms()
        if wait_ms <= 0 or wait_ms <= (delay_ms := self._delay_ms(level, last, due_ms)):
            level.held_from = None
        elif level.held_from is None:
            level.held_from = first_new
            level.held_until = level.max_offset
            level.held_due = elapsed_ms(self._clock) + delay_ms

    def _delay_ms(self, level: _Level, offset: int, due_ms: int) -> int:
        if level.queue_id < len(self._levels_ms):
            return self._levels_ms[level.queue_id]
        # The configuration no longer has this level; its messages have their due time.
        stored_ms = self._store.store_time(SCHEDULE_TOPIC, level.queue_id, offset)
        return due_ms if stored_ms is None else due_ms - stored_ms

    # Delivering

    def _take_turn(self) -> None:
        if self._line and not self._has_turn and self._timers is not None:
            self._has_turn = True
            self._timers.call_soon(self._deliver_next)

    def _deliver_next(self) -> None:
        """Deliver one slice of the level that has waited longest."""
        self._has_turn = False
        if not self._line:
            return
        level = self._line.popleft()
        level.in_line = False
        problem: str | None = None
        try:
            problem = self._deliver_slice(level)
        except RmqError as error:
            problem = str(error)
        finally:
            self._take_turn()
        if problem is not None:
            self._back_off(level, problem)
            return
        if level.failures:
            _log.info("delivery of delay level %d resumed", level.queue_id + 1)
            level.failures = 0
        self._look(level)

    def _deliver_slice(self, level: _Level) -> str | None:
        """Append due messages up to the limits of a slice; returns the reason of a failure."""
        assert self._progress is not None
        queue_id = level.queue_id
        offset = self._progress.offset(queue_id)
        count = self._due_count(level, offset)
        if count == 0:
            return None
        try:
            found = self._store.get(
                SCHEDULE_TOPIC, queue_id, offset, count, size_max=SLICE_SIZE_MAX
            )
        except CorruptRecord as error:
            if count > 1:
                level.single_until = offset + count
            else:
                self._give_up(queue_id, offset, str(error))
            return None
        for record in found.messages():
            try:
                copy = delivered(record)
            except MalformedRecord as error:
                self._give_up(queue_id, record.queue_offset, str(error))
                continue
            result = self._copies.append(copy)
            if not result.ok:
                return f"{result.status.name}: {result.remark}"
            self._progress.advance(queue_id, record.queue_offset + 1)
            self.delivered_count += 1
        # Retention may have deleted records that were never delivered.
        self._progress.advance(queue_id, found.next_offset)
        return None

    def _due_count(self, level: _Level, offset: int) -> int:
        count_max = 1 if offset < level.single_until else SLICE_COUNT_MAX
        units = self._store.units(SCHEDULE_TOPIC, level.queue_id, offset, count_max)
        for count, (_, _, due_ms) in enumerate(units):
            if self._wait_ms(level, offset + count, due_ms) > 0:
                return count
        return len(units)

    def _give_up(self, queue_id: int, offset: int, reason: str) -> None:
        """Skip a message that cannot be delivered, so that later ones need not wait."""
        assert self._progress is not None
        _log.error(
            "delay level %d, offset %d: skipped, the message cannot be delivered: %s",
            queue_id + 1,
            offset,
            reason,
        )
        self._progress.advance(queue_id, offset + 1)

    def _back_off(self, level: _Level, reason: str) -> None:
        if self._timers is None:
            return
        if level.failures == 0:
            _log.warning("delay level %d cannot be delivered: %s", level.queue_id + 1, reason)
        level.failures += 1
        level.stop_timer()
        wait_s = back_off_ms(level.failures) / 1000
        level.timer = self._timers.call_later(wait_s, self._look, level)

    # Periodic work

    def _tick(self) -> None:
        if self._timers is None or self._progress is None:
            return
        self._tick_timer = self._timers.call_later(self._tick_s, self._tick)
        is_due = elapsed_ms(self._clock) - self._saved_at_ms >= self._save_interval_ms
        if is_due:
            self._saved_at_ms = elapsed_ms(self._clock)
        self._progress.save_when_durable(is_due=is_due)
        drift = drift_ms(self._clock)
        was_set = abs(drift - self._drift_ms) > CLOCK_STEP_MS
        if was_set:
            self._drift_ms = drift
        for level in list(self._levels.values()):
            if level.timer is None or (was_set and not level.failures):
                self._look(level)
