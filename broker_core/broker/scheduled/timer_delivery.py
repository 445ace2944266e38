"""Delivers timer messages when they are due, unless they are recalled before.

Owns one timer, for the first entry of `timer_runs`. Due messages are appended in slices, so that
the event loop serves requests in between. A failed append is retried with exponential back-off; the
order is kept. A message whose record becomes too old before it is due is rolled: stored again at
the end of the log, out of reach of retention. Exactly once: each outcome is one record (see
`timer_message`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from broker_core.broker.redelivery import Redelivery
from broker_core.broker.scheduled.delayed_message import shortened
from broker_core.broker.scheduled.timer_intake import Recalled
from broker_core.broker.scheduled.timer_message import (
    TIMER_QUEUE,
    TIMER_ROLL_TIMES,
    delivered_timer,
    rolled_timer,
    stored_due_ms,
)
from broker_core.broker.scheduled.timer_progress import TimerProgress
from broker_core.broker.scheduled.timer_runs import entry_position, entry_wake_ms, is_recall_entry
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
)
from broker_core.codec.records.message_properties import change_properties
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.topic_name import TIMER_TOPIC
from broker_core.errors import CorruptRecord, MalformedRecord, RmqError
from broker_core.protocol_codes import PutStatus
from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import Worker
from broker_core.storage.files.file_system import FileSystem
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

_log = logging.getLogger(__name__)

# A record is rolled at half the retention time, after two days at most.
ROLL_AFTER_MAX_MS: Final = 2 * 86_400_000
ROLL_AFTER_MIN_MS: Final = 60_000

_TOPIC: Final = TIMER_TOPIC.encode()


def roll_after_ms(reserved_hours: int) -> int:
    """Age at which the record of a waiting message is rolled."""
    half_ms = reserved_hours * 3_600_000 // 2
    return min(max(half_ms, ROLL_AFTER_MIN_MS), ROLL_AFTER_MAX_MS)


class TimerDelivery:
    """Event loop only. Without `timers` and `worker` `start` needs a running event loop."""

    def __init__(
        self,
        *,
        store: MessageStore,
        file_system: FileSystem,
        clock: Clock,
        reserved_hours: int,
        stats: BrokerStats | None = None,
        timers: Timers | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._store = store
        self._file_system = file_system
        self._clock = clock
        self._roll_after_ms = roll_after_ms(reserved_hours)
        self._stats = stats
        self._copies = Redelivery(store, stats, shortened)
        self._rolls = Redelivery(store, None, _without_roll_times)
        self._run = ServiceRun("rmq-timers", timers, worker)
        self._timers: Timers | None = None
        self._progress: TimerProgress | None = None
        self._timer: Timer | None = None
        self._timer_wake_ms = 0
        self._tick_timer: Timer | None = None
        self._is_reading = False
        self._has_turn = False
        self._failures = 0
        self._drift_ms = 0
        # Position -> entry of recalls whose message is about to be due.
        self._recalled: dict[int, int] = {}
        self._missing_count = 0
        self.delivered_count = 0

    # Starting and stopping

    def reserve_problem(self, reserved_hours: int) -> str | None:
        """Why this shorter retention cannot be applied; None if it can."""
        waiting = self.pending_count
        if waiting and roll_after_ms(reserved_hours) < self._roll_after_ms:
            return (
                f"{waiting} timer messages wait in files that would be removed before their time; "
                "set it in broker.conf and start the broker again, which stores them again"
            )
        return None

    def reconfigure(self, reserved_hours: int) -> None:
        """Apply a retention that has passed `reserve_problem`."""
        new_ms = roll_after_ms(reserved_hours)
        if self._progress is None:
            self._roll_after_ms = new_ms
        elif new_ms < self._roll_after_ms:
            # Rolling more often than needed is harmless; less often is not.
            self._roll_after_ms = new_ms
            self._progress.set_roll_after(new_ms)

    def start(self) -> None:
        """Find the waiting messages and deliver them when due. On a master, before it serves."""
        if self._progress is not None:
            return
        self._timers, worker = self._run.begin()
        progress = TimerProgress(
            store=self._store,
            file_system=self._file_system,
            worker=worker,
            roll_after_ms=self._roll_after_ms,
        )
        with self._run.ended_by_failure():
            progress.load()
        if self._stats is not None and self._stats.tallies is not None:
            progress.intake.count_delays(self._stats.tallies.delays_s)
        self._progress = progress
        self._drift_ms = drift_ms(self._clock)
        self._store.on_arrival(self._arrived)
        self._store.before_clean(self._before_clean)
        self._tick_timer = self._timers.call_later(TICK_MS / 1000, self._tick)
        self._look()

    def stop(self) -> None:
        """Stop and save. The store must still be open."""
        if self._progress is None or self._timers is None:
            return
        self._timers = None
        for timer in (self._timer, self._tick_timer):
            if timer is not None:
                timer.cancel()
        self._progress.close(self._recalled)
        self._run.end()

    # State

    @property
    def is_running(self) -> bool:
        """Between `start` and `stop`."""
        return self._timers is not None and self._progress is not None

    @property
    def pending_by_topic(self) -> Mapping[str, int]:
        """Number of waiting messages by topic."""
        if self._progress is None:
            return {}
        return {topic: n for topic, n in self._progress.intake.by_topic.items() if n > 0}

    @property
    def pending_count(self) -> int:
        """Number of waiting messages."""
        return sum(self.pending_by_topic.values())

    @property
    def queue_offset(self) -> int:
        """Next offset to read of the timer topic's queue."""
        return 0 if self._progress is None else self._progress.intake.offset

    @property
    def entered_count(self) -> int:
        """Messages that were read from the queue since the start."""
        return 0 if self._progress is None else self._progress.intake.entered_count

    @property
    def queue_behind(self) -> int:
        """Number of entries of that queue that are not read yet."""
        return 0 if self._progress is None else self._progress.intake.behind

    @property
    def late_ms(self) -> int:
        """By how much the next message is overdue."""
        head = None if self._progress is None else self._progress.pending.head()
        return 0 if head is None else max(self._clock.wall_ms() - entry_wake_ms(head), 0)

    @property
    def is_late(self) -> bool:
        """Whether messages that are due, or may be, are not delivered yet."""
        head = None if self._progress is None else self._progress.pending.head()
        return bool(self.queue_behind) or (
            head is not None and entry_wake_ms(head) <= self._clock.wall_ms()
        )

    def recall(self, topic: str, unique_key: str, due_ms: int) -> Recalled:
        """Cancel a message that is not due yet; see `TimerIntake.recall`."""
        assert self._progress is not None
        recalled = self._progress.intake.recall(topic, unique_key, due_ms, self._clock.wall_ms())
        self._look()
        return recalled

    # Reading the queue

    def _arrived(self, topic: bytes, queue_id: int, _: int) -> None:
        if topic == _TOPIC and queue_id == TIMER_QUEUE:
            self._read_soon()

    def _read_soon(self) -> None:
        if not self._is_reading and self._timers is not None:
            self._is_reading = True
            self._timers.call_soon(self._read)

    def _read(self) -> None:
        self._is_reading = False
        progress = self._progress
        if progress is None or self._timers is None:
            return
        try:
            if progress.is_crowded:
                # The disk is too slow; continue with the next tick.
                return
            found = progress.intake.take()
        except (RmqError, OSError) as error:
            _log.warning("the queue of timer messages cannot be read: %s", error)
            return
        if found:
            self._save_when_due()
            self._read_soon()
            self._look()

    # Waiting

    def _look(self) -> None:
        """Set the timer for the first entry."""
        if self._timers is None or self._progress is None or self._has_turn or self._failures:
            return
        head = self._progress.pending.head()
        if head is None:
            self._stop_timer()
            return
        wake_ms = entry_wake_ms(head)
        wait_ms = wake_ms - self._clock.wall_ms()
        if wait_ms <= 0:
            self._stop_timer()
            self._has_turn = True
            self._timers.call_soon(self._deliver)
        elif self._timer is None or wake_ms != self._timer_wake_ms:
            self._stop_timer()
            self._timer_wake_ms = wake_ms
            self._timer = self._timers.call_later(wait_ms / 1000, self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._look()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Delivering

    def _deliver(self) -> None:
        """Deliver one slice."""
        self._has_turn = False
        if self._timers is None:
            return
        try:
            problem = self._deliver_slice()
        except (RmqError, OSError) as error:
            problem = str(error)
        if problem is not None:
            self._back_off(problem)
            return
        if self._failures:
            _log.info("delivery of timer messages resumed")
            self._failures = 0
        self._save_when_due()
        self._look()

    def _deliver_slice(self) -> str | None:
        """Append due messages up to the limits of a slice; returns the reason of a failure."""
        assert self._progress is not None
        pending = self._progress.pending
        now_ms = self._clock.wall_ms()
        size = 0
        for _ in range(SLICE_COUNT_MAX):
            head = pending.head()
            if head is None or entry_wake_ms(head) > now_ms or size > SLICE_SIZE_MAX:
                break
            entry = pending.take()
            if is_recall_entry(entry):
                self._note_recalled(entry)
                continue
            position = entry_position(entry)
            if self._recalled.pop(position, None) is not None:
                self._progress.note_ended()
                continue
            if position in self._progress.ended:
                self._progress.ended.discard(position)
                continue
            result: PutResult | None = None
            try:
                result = self._end(position, now_ms)
            finally:
                if result is None or not result.ok:
                    pending.add(entry)
            if not result.ok:
                return f"{result.status.name}: {result.remark}"
            size += max(result.end_position - result.position, 0)
        return None

    def _note_recalled(self, entry: int) -> None:
        wake_ms = entry_wake_ms(entry)
        if self._recalled and entry_wake_ms(next(iter(self._recalled.values()))) != wake_ms:
            # Their messages were delivered, rolled or recalled before.
            self._recalled.clear()
        self._recalled[entry_position(entry)] = entry

    def _end(self, position: int, now_ms: int) -> PutResult:
        """Deliver or roll the record at `position`. A result without a record means: skipped."""
        assert self._progress is not None
        left_out = PutResult(PutStatus.PUT_OK)
        try:
            record = self._store.message_at(position)
            if record is None:
                self._missing_count += 1
                return left_out
            due_ms = _due_ms(record)
            copy = delivered_timer(record)
        except (CorruptRecord, MalformedRecord) as error:
            _log.error("a timer message can never be delivered and is skipped: %s", str(error))
            return left_out
        if due_ms > now_ms:
            result = self._rolls.append(rolled_timer(record))
        else:
            result = self._copies.append(copy)
            self.delivered_count += result.ok
        if result.ok:
            self._progress.note_ended()
            self._progress.intake.count_ended(copy.topic)
        return result

    def _back_off(self, reason: str) -> None:
        if self._timers is None:
            return
        if self._failures == 0:
            _log.warning("timer messages cannot be delivered: %s", reason)
        self._failures += 1
        self._stop_timer()
        wait_s = back_off_ms(self._failures) / 1000
        self._timer = self._timers.call_later(wait_s, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        if self._timers is not None and not self._has_turn:
            self._has_turn = True
            self._timers.call_soon(self._deliver)

    # Periodic work

    def _tick(self) -> None:
        if self._timers is None:
            return
        self._tick_timer = self._timers.call_later(TICK_MS / 1000, self._tick)
        if self._missing_count:
            _log.error(
                "retention has removed %d timer messages before they were due",
                self._missing_count,
            )
            self._missing_count = 0
        self._save_when_due()
        self._read_soon()
        if self._progress is not None:
            self._progress.intake.settle()
        drift = drift_ms(self._clock)
        if abs(drift - self._drift_ms) > CLOCK_STEP_MS:
            self._drift_ms = drift
            if not self._failures:
                self._stop_timer()
        self._look()

    def _save_when_due(self) -> None:
        assert self._progress is not None
        try:
            self._progress.save_when_due(self._recalled)
        except (RmqError, OSError) as error:
            _log.warning("the progress of timer messages is not saved: %s", error)

    def _before_clean(self) -> None:
        if self.is_running and self._progress is not None:
            self._progress.save_before_clean(self._recalled)


def _due_ms(record: MessageRecord) -> int:
    due_ms = stored_due_ms(record.property_text) if record.topic == TIMER_TOPIC else None
    if due_ms is None:
        raise MalformedRecord(record.physical_offset, "it is not a timer message")
    return due_ms


def _without_roll_times(record: MessageRecord) -> MessageRecord:
    text = change_properties(record.property_text, {TIMER_ROLL_TIMES: ""})
    return record._replace(property_text=text)
