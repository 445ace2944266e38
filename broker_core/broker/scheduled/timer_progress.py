"""Progress of timer messages, so that a start finds the waiting ones without reading the log.

`timerProgress.json` names the runs of waiting entries (see `timer_runs`) with their cursors, the
offset up to which the timer topic's queue was read for them, and the log and position up to which
the cursors include every ended message. After that position the log is authoritative: a start opens
the runs, scans the log from there for outcomes, and reads the rest of the queue. Without the file,
or with damaged runs, it does the same from the beginning.

The file is written only once the log is durable up to what it refers to: no power cut can lose the
copy of a message that is recorded as delivered. Runs are written before the file that names them,
and removed after the first file that does not.
"""

from __future__ import annotations

import enum
import logging
from array import array
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.broker.scheduled.delayed_message import waiting_position
from broker_core.broker.scheduled.timer_intake import OtherBroker, TimerIntake
from broker_core.broker.scheduled.timer_message import TIMER_QUEUE, is_recall, property_bytes
from broker_core.broker.scheduled.timer_runs import (
    FRESH_MAX,
    PendingTimers,
    RunState,
    TimerRun,
    entry_position,
    is_recall_entry,
    merged_run,
    remove_run_files,
)
from broker_core.codec.json.fields import (
    I64_MAX,
    list_field,
    object_field,
    text_field,
    whole_field,
    whole_number,
)
from broker_core.codec.wire.topic_name import TIMER_TOPIC
from broker_core.errors import CorruptRecord, CorruptStore, InvalidArgument, RmqError
from broker_core.runtime.worker import Worker
from broker_core.storage.files.atomic_file import read_file
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.message_store import MessageStore

_log = logging.getLogger(__name__)

TIMER_PROGRESS_FILE: Final = "config/timerProgress.json"
# RocketMQ's own progress file.
OTHER_PROGRESS_FILE: Final = "config/timercheck"
# Save after this much log or this many deliveries, which bounds the work of the next start.
GROWTH_MAX: Final = 64 << 20
ENDED_MAX: Final = 20_000

_OTHER_SIZE: Final = 32


class _Phase(enum.Enum):
    """Step of a save."""

    IDLE = "nothing"
    WRITING = "runs are being written"
    WAITING = "the log is not durable enough yet"
    SAVING = "the file is being replaced"
    MERGING = "runs become one"


class _Snapshot(NamedTuple):
    """Progress to save. It may be written once the log is durable up to `position`."""

    content: dict[str, Any]
    position: int
    runs: frozenset[int]


class _Stored(NamedTuple):
    """The content of the file."""

    position: int
    offset: int
    runs: list[RunState]
    ended: set[int]
    topics: dict[str, int]


class TimerProgress:
    """Owns the waiting entries. Event loop only; files are written by the worker."""

    def __init__(
        self,
        *,
        store: MessageStore,
        file_system: FileSystem,
        worker: Worker,
        roll_after_ms: int,
    ) -> None:
        self._store = store
        self._file_system = file_system
        self._table = JsonTable(file_system, TIMER_PROGRESS_FILE)
        self._worker = worker
        self._roll_after_ms = roll_after_ms
        self.pending = PendingTimers(file_system)
        self.intake = TimerIntake(store, self.pending, roll_after_ms)
        # Ended records that are still in the runs.
        self.ended: set[int] = set()
        self._ended_count = 0
        self._saved_position = -1
        self._phase = _Phase.IDLE
        self._snapshot: _Snapshot | None = None
        # Results of jobs for an earlier generation are ignored.
        self._round = 0
        self._wants_save = False

    def set_roll_after(self, roll_after_ms: int) -> None:
        """Roll waiting messages at another age; nothing may be waiting."""
        self._roll_after_ms = roll_after_ms
        self.intake.set_roll_after(roll_after_ms)

    @property
    def is_crowded(self) -> bool:
        """Whether reading the queue must pause until runs are written."""
        return self.pending.fresh_count >= 4 * FRESH_MAX

    def note_ended(self) -> None:
        """A message was delivered, rolled or recalled."""
        self._ended_count += 1

    # Loading

    def load(self) -> None:
        """Find the waiting messages. Raises `CorruptStore` for a damaged log."""
        stored = self._stored()
        if stored is None:
            self._start_over()
        else:
            self.intake.offset = stored.offset
            self.intake.by_topic = stored.topics
            self.ended = stored.ended
            self._saved_position = stored.position
        first = self._first_position()
        self._read_log(first)
        while self.intake.take():
            if self.pending.fresh_count >= FRESH_MAX:
                self._spill_now()
        self.intake.ended = array("q")
        self.intake.other_broker = None
        self._pass_ended()

    def _stored(self) -> _Stored | None:
        """The content of the file, with its runs opened; None if it is unusable."""
        try:
            content = self._table.load()
            stored = None if content is None else self._parsed(content)
            if stored is not None and not self.pending.take_over(stored.runs):
                _log.warning("timer runs are damaged or missing and are rebuilt")
                stored = None
        except (CorruptStore, InvalidArgument, OSError) as error:
            _log.warning(
                "%s cannot be used, reading the log instead: %s", TIMER_PROGRESS_FILE, error
            )
            stored = None
        return stored

    def _parsed(self, content: Mapping[str, Any]) -> _Stored | None:
        position = whole_field(content, "logPosition", least=0)
        offset = whole_field(content, "queueOffset", least=0)
        is_ours = (
            text_field(content, "storeId", "") == self._store.store_id
            # A log that was cut may have other records at these positions.
            and whole_field(content, "epoch", least=0) == self._store.epoch
            and whole_field(content, "rollAfterMs", least=1) == self._roll_after_ms
            and position <= self._store.dispatched_position
            and offset <= self._store.offsets(TIMER_TOPIC, TIMER_QUEUE)[1]
        )
        if not is_ours:
            return None
        topics = object_field(content, "topics")
        return _Stored(
            position,
            offset,
            [_run_state(run) for run in list_field(content, "runs")],
            {whole_number(str(p), "ended", 0, I64_MAX) for p in list_field(content, "ended")},
            {topic: whole_field(topics, topic, least=0) for topic in topics},
        )

    def _start_over(self) -> None:
        self.pending.close()
        self.pending = PendingTimers(self._file_system)
        self.intake = TimerIntake(self._store, self.pending, self._roll_after_ms)
        self.intake.offset = self._store.offsets(TIMER_TOPIC, TIMER_QUEUE)[0]
        self.intake.other_broker = self._other_broker()
        remove_run_files(self._file_system, frozenset())
        self._wants_save = True

    def _other_broker(self) -> OtherBroker | None:
        """Progress of RocketMQ's broker, whose deliveries leave no mark in the log."""
        data = read_file(self._file_system, OTHER_PROGRESS_FILE)
        if data is None or len(data) < _OTHER_SIZE:
            return None
        read_ms, offset = int.from_bytes(data[:8], "big"), int.from_bytes(data[16:24], "big")
        return OtherBroker(read_ms, offset)

    def _first_position(self) -> int | None:
        """Log position of the first record in the unread part of the queue."""
        units = self._store.units(TIMER_TOPIC, TIMER_QUEUE, self.intake.offset, 1)
        if not units and self.intake.behind:
            low = self._store.offsets(TIMER_TOPIC, TIMER_QUEUE)[0]
            units = self._store.units(TIMER_TOPIC, TIMER_QUEUE, low, 1)
        return units[0][0] if units else None

    def _read_log(self, first: int | None) -> None:
        """Account for outcomes in the log. An outcome follows the record it names."""
        if first is None and not len(self.pending):
            return
        start = self._saved_position if len(self.pending) else max(self._saved_position, first or 0)
        size = self._store.dispatched_position - start
        if size > GROWTH_MAX:
            _log.info("looking for ended timer messages in the last %d MB of the log", size >> 20)
        in_queue = array("q")
        for mark, prepared in self._store.prepared_offsets(max(start, 0)):
            position = waiting_position(prepared)
            if position is None:
                continue
            if first is not None and position >= first:
                in_queue.append(position)
            elif len(self.pending):
                self._ended_in_run(mark, position)
        self.intake.ended = array("q", sorted(in_queue))

    def _ended_in_run(self, mark: int, position: int) -> None:
        try:
            record, by = self._store.message_at(position), self._store.message_at(mark)
        except CorruptRecord as error:
            # It cannot be delivered a second time: its record is unreadable.
            _log.warning("an ended timer message can no longer be read: %s", str(error))
            return
        if record is None or by is None or record.topic != TIMER_TOPIC:
            return
        if by.topic == TIMER_TOPIC and is_recall(by.property_text):
            # Read from the queue as a recall.
            return
        if position not in self.ended:
            self.ended.add(position)
            topic = property_bytes(record.property_text, b"REAL_TOPIC\x01")
            self.intake.count_ended(topic.decode("utf-8", "replace"))

    def _spill_now(self) -> None:
        self.pending.spill()
        for run in self.pending.runs:
            run.write()
            run.written()

    def _pass_ended(self) -> None:
        """Drop ended entries from the front, where most of them are."""
        while self.ended:
            head = self.pending.head()
            if head is None:
                self.ended.clear()
            elif is_recall_entry(head) or entry_position(head) not in self.ended:
                return
            else:
                self.ended.discard(entry_position(self.pending.take()))

    # Saving

    def save_when_due(self, recalled: Mapping[int, int]) -> None:
        """Do the next step of a save, or begin one; `recalled` are recall entries in use."""
        if self._phase is _Phase.WAITING:
            self._save_when_durable()
        elif self._phase is _Phase.IDLE and self._is_due():
            self._begin(recalled)
        elif self._phase is _Phase.IDLE:
            self._merge_when_due()

    def _is_due(self) -> bool:
        if self._wants_save or self.pending.fresh_count >= FRESH_MAX:
            return True
        if self._ended_count >= ENDED_MAX:
            return True
        has_grown = self._store.log_range[1] - self._saved_position > GROWTH_MAX
        return has_grown and (len(self.pending) > 0 or self._ended_count > 0)

    def _begin(self, recalled: Mapping[int, int]) -> None:
        self._wants_save = False
        self._snapshot = self._taken_snapshot(recalled)
        runs = [run for run in self.pending.runs if not run.is_written]
        self._phase = _Phase.WRITING
        begun = self._round
        self._worker.submit(
            lambda: _write(runs),
            lambda _, error: self._written(begun, runs, error),
        )

    def _taken_snapshot(self, recalled: Mapping[int, int]) -> _Snapshot:
        for entry in recalled.values():
            # The recall was taken from its run, its message not yet.
            self.pending.add(entry)
        self.pending.spill()
        self._ended_count = 0
        end = self._store.log_range[1]
        states = [run.state for run in self.pending.runs]
        content = {
            "storeId": self._store.store_id,
            "epoch": self._store.epoch,
            "rollAfterMs": self._roll_after_ms,
            "logPosition": end,
            "queueOffset": self.intake.offset,
            "runs": [list(state) for state in states],
            "ended": sorted(self.ended),
            "topics": {t: n for t, n in self.intake.counts_at_offset.items() if n > 0},
        }
        return _Snapshot(content, end, frozenset(state.number for state in states))

    def _written(self, begun: int, runs: list[TimerRun], error: BaseException | None) -> None:
        if begun != self._round:
            return
        if error is not None:
            self._failed(error)
            return
        for run in runs:
            run.written()
        self._phase = _Phase.WAITING
        self._save_when_durable()

    def _save_when_durable(self) -> None:
        snapshot = self._snapshot
        assert snapshot is not None
        if snapshot.position > self._store.flushed_position:
            return
        self._phase = _Phase.SAVING
        keep = snapshot.runs | {run.number for run in self.pending.runs}
        begun = self._round
        self._worker.submit(
            lambda: self._save(snapshot.content, keep),
            lambda _, error: self._saved(begun, snapshot, error),
        )

    def _save(self, content: dict[str, Any], keep: frozenset[int]) -> None:
        self._table.save(content)
        remove_run_files(self._file_system, keep)

    def _saved(self, begun: int, snapshot: _Snapshot, error: BaseException | None) -> None:
        if begun != self._round:
            return
        if error is not None:
            self._failed(error)
            return
        self._phase = _Phase.IDLE
        self._saved_position = snapshot.position
        self._merge_when_due()

    def _failed(self, error: BaseException) -> None:
        _log.warning("the progress of timer messages is not saved, trying again: %s", error)
        self._phase = _Phase.IDLE
        self._wants_save = True

    def _merge_when_due(self) -> None:
        runs = self.pending.small_runs()
        if not runs:
            return
        states = [run.state for run in runs]
        number = self.pending.new_number()
        self._phase = _Phase.MERGING
        begun = self._round
        self._worker.submit(
            lambda: merged_run(self._file_system, number, states),
            lambda merged, error: self._merged(begun, states, merged, error),
        )

    def _merged(
        self,
        begun: int,
        states: list[RunState],
        merged: TimerRun | None,
        error: BaseException | None,
    ) -> None:
        if begun != self._round:
            return
        if error is not None or merged is None:
            self._failed(error or OSError("nothing was written"))
            return
        self.pending.replace(states, merged)
        self._phase = _Phase.IDLE
        self._wants_save = True

    def save_now(self, recalled: Mapping[int, int]) -> None:
        """Make everything durable and save it, waiting for the disk."""
        self._round += 1
        self._phase = _Phase.IDLE
        self._worker.run(lambda: None)
        snapshot = self._taken_snapshot(recalled)
        for run in self.pending.runs:
            run.write()
            run.written()
        self._store.flush()
        if snapshot.runs or self.intake.offset:
            self._save(snapshot.content, snapshot.runs)
            self._saved_position = snapshot.position

    def save_before_clean(self, recalled: Mapping[int, int]) -> None:
        """Save before log files are deleted: they may have the only record of ended messages."""
        if self._ended_count or self.ended or len(self.pending):
            self.save_now(recalled)

    def close(self, recalled: Mapping[int, int]) -> None:
        """Save. A failure is only logged: the next start reads more."""
        try:
            self.save_now(recalled)
        except (RmqError, OSError) as error:
            _log.warning("the progress of timer messages is not up to date: %s", error)
        self.pending.close()


def _write(runs: list[TimerRun]) -> None:
    for run in runs:
        run.write()


def _run_state(stored: Any) -> RunState:
    if not isinstance(stored, list) or len(stored) != len(RunState._fields):
        raise InvalidArgument(f"a run is described by {stored!r:.80}")
    numbers = [whole_number(str(value), "run", 0, I64_MAX) for value in stored]
    state = RunState(*numbers)
    if state.cursor > state.entry_count:
        raise InvalidArgument(f"run {state.number} was read past its end")
    return state
