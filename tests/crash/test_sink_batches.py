"""A batch of a sink is visible once or not at all, whenever the broker is killed.

A seeded run stages, publishes, repeats, saves, cleans and restarts. Before every file operation
that changes what a crash may leave, the disk is taken as a kill and as power cuts would leave it.
On each of these a new broker is started: every batch is there as a whole or not at all, what was
acknowledged is there, the table names the last one; then a new run of the writers repeats the last
batches, as Spark does, and afterwards every batch is there exactly once. Some of these brokers are
killed on the way, too. The last part kills real processes between requests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections import Counter
from typing import Any

import pytest

from broker_core.broker.sink.batches import SinkBatches
from broker_core.codec.records.staged_block import StagedPart
from broker_core.errors import CorruptStore, SinkFenced, StagingRefused
from broker_core.protocol_codes import FlushDiskType
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.broker.sink_store import QUEUES, SinkStore, identity
from tests.fakes.crash_states import CrashPoint
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedCrash, SimulatedDisk

pytestmark = pytest.mark.crash

MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    # Here batches are verified on a thread, as large ones are.
    "async": {"flush_disk_type": FlushDiskType.ASYNC_FLUSH, "inline_size_max": -1},
}
RETENTION: dict[str, Any] = {"file_reserved_hours": 1, "delete_files_per_round": 100}
STATES_PER_POINT = 2
SECOND_CRASH_EVERY = 3
SINKS = ("A", "B")
HOUR_MS = 3_600_000

Batch = tuple[str, int]


@dataclasses.dataclass
class _Model:
    """What the writers know."""

    rows: dict[Batch, dict[tuple[str, int], list[bytes]]] = dataclasses.field(default_factory=dict)
    acknowledged: set[Batch] = dataclasses.field(default_factory=set)
    next_batch: Counter[str] = dataclasses.field(default_factory=Counter)
    is_cleaned: bool = False

    def copy(self) -> _Model:
        return _Model(
            dict(self.rows), set(self.acknowledged), Counter(self.next_batch), self.is_cleaned
        )

    def last_acknowledged(self, sink: str) -> int:
        return max((b for s, b in self.acknowledged if s == sink), default=-1)


@dataclasses.dataclass
class _Point:
    """A moment of the run: what a kill leaves, what power cuts may leave, what was promised."""

    number: int
    killed: SimulatedDisk
    cut: CrashPoint
    disk: SimulatedDisk
    model: _Model


class SinkRun:
    """One broker after the other on one disk, watched."""

    def __init__(self, seed: int, settings: dict[str, Any], *, retention: bool = False) -> None:
        self.rng = random.Random(seed)
        self.settings = {**settings, **(RETENTION if retention else {})}
        self.retention = retention
        self.model = _Model()
        self.verdicts = 0
        self.problems: list[str] = []
        self._run = 0
        self._points: list[_Point] = []
        self._version = -1
        self._disk: SimulatedDisk | None = None
        self._clock = ManualClock()
        disk = SimulatedDisk(clock=self._clock, seed=seed)
        self._watch(disk)
        self.sinks = SinkStore(disk, **self.settings)

    def run(self, steps: int) -> None:
        """Do as many things as `steps`; every moment is judged right after its step."""
        doings = [self._write] * 5 + [self._repeat, self._new_run, self._other_traffic]
        doings += [self._save, self._restart, self._kill]
        if self.retention:
            doings += [self._clean] * 2
        for _ in range(steps):
            self.rng.choice(doings)()
            self._judge_points()
            if self.problems:
                return

    # Steps

    def _who(self, sink: str, batch: int) -> Any:
        return identity(batch, f"run-{self._run}", sink)

    def _write(self) -> None:
        sink = self.rng.choice(SINKS)
        batch = self.model.next_batch[sink]
        parts = self._stage(sink, batch)
        if self.rng.random() < 0.2:
            self._stage(sink, batch)
        answer = self.sinks.publish(self._who(sink, batch), *parts)
        if answer.is_repeat:
            self.problems.append(f"{sink}/{batch} is new and was called a repeat")
        self.model.acknowledged.add((sink, batch))
        self.model.next_batch[sink] += 1

    def _stage(self, sink: str, batch: int) -> list[StagedPart]:
        rows = self.model.rows.get((sink, batch))
        if rows is None:
            rows = {}
            for topic, queue_id in self.rng.sample(QUEUES, self.rng.randint(1, len(QUEUES))):
                count = self.rng.choice((1, 3, 20))
                label = f"{sink}/{batch}/{topic}{queue_id}"
                rows[topic, queue_id] = [f"{label}/{n}".encode() for n in range(count)]
            self.model.rows[sink, batch] = rows
        who = self._who(sink, batch)
        return [self.sinks.stage(who, {queue: bodies}) for queue, bodies in rows.items()]

    def _repeat(self) -> None:
        sink = self.rng.choice(SINKS)
        batch = self.model.next_batch[sink] - 1
        if batch >= 0:
            answer = self.sinks.publish(self._who(sink, batch), *self._stage(sink, batch))
            if not answer.is_repeat:
                self.problems.append(f"{sink}/{batch} was published twice")

    def _new_run(self) -> None:
        """A restarted writer repeats its last batch; the old run is a zombie from now on."""
        sink = self.rng.choice(SINKS)
        batch = self.model.next_batch[sink]
        zombie = self._stage(sink, batch)
        old = self._who(sink, batch)
        self._run += 1
        if batch:
            self.sinks.publish(self._who(sink, batch - 1), *self._stage(sink, batch - 1))
        else:
            self._stage(sink, batch)
        with contextlib.suppress(SinkFenced):
            self.sinks.publish(old, *zombie)
            self.problems.append(f"{sink}/{batch}: a replaced run was let in")
        for other in SINKS:
            if other != sink:
                self._stage(other, self.model.next_batch[other])

    def _other_traffic(self) -> None:
        self.sinks.store.append(Message("other", bytes(self.rng.choice((50, 3_000)))))

    def _save(self) -> None:
        self.sinks.batches.save()

    def _clean(self) -> None:
        for _ in range(6):
            self.sinks.store.append(Message("other", bytes(3_000)))
        self.sinks.store.flush()
        self._clock.advance(2 * HOUR_MS)
        self.model.is_cleaned = True
        self.sinks.store.append(Message("other", bytes(3_000)))
        self.sinks.store.clean(manual=True)

    def _restart(self) -> None:
        self.sinks = self.sinks.restart()

    def _kill(self) -> None:
        disk = self.sinks.disk.kill()
        self._watch(disk)
        self.sinks = self.sinks.successor(disk)

    # Moments

    def _watch(self, disk: SimulatedDisk) -> None:
        disk.on_operation = lambda number: self._before(disk, number)

    def _before(self, disk: SimulatedDisk, number: int) -> None:
        if disk is self._disk and disk._version == self._version:
            return
        self._disk, self._version = disk, disk._version
        self._points.append(
            _Point(number, disk.copy(), disk.crash_point(), disk, self.model.copy())
        )

    def _judge_points(self) -> None:
        points, self._points = self._points, []
        for point in points:
            disks = [("kill", point.killed)]
            for state in point.cut.states(STATES_PER_POINT, self.rng):
                disks.append((f"power cut, {state.describe()}", point.disk.reboot(state)))
            for what, disk in disks:
                for line in self._judge(disk, point.model):
                    self.problems.append(f"before operation {point.number}: {what}: {line}")
            if self.problems:
                return

    def _judge(self, disk: SimulatedDisk, model: _Model) -> list[str]:
        self.verdicts += 1
        model = model.copy()
        disk.clock = ManualClock(self._clock.wall_ms())
        if self.verdicts % SECOND_CRASH_EVERY == 0:
            disk.crash_at(self.rng.randint(1, 150))
            with contextlib.suppress(SimulatedCrash):
                self._replay(SinkStore(disk, **self.settings), model, f"first-{self._run}")
            disk = disk.kill()
        sinks = SinkStore(disk, **self.settings)
        problems = problems_of(sinks, model)
        if not problems:
            problems = self._replay(sinks, model, f"again-{self._run}")
            problems += [f"after the replay: {line}" for line in problems_of(sinks, model)]
        return problems

    def _replay(self, sinks: SinkStore, model: _Model, run: str) -> list[str]:
        """A new run writes the last batches again, as far as the writers have them."""
        problems = []
        for sink in SINKS:
            last = model.last_acknowledged(sink)
            for batch in (last, last + 1):
                rows = model.rows.get((sink, batch))
                if rows is None or batch < sinks.batches.status(sink).batch:
                    continue
                who = identity(batch, run, sink)
                answer = sinks.publish(who, sinks.stage(who, rows))
                if batch == last and not answer.is_repeat:
                    problems.append(f"{sink}/{batch} was acknowledged and published again")
                model.acknowledged.add((sink, batch))
        return problems


def problems_of(sinks: SinkStore, model: _Model) -> list[str]:
    """What is wrong with a store and its table."""
    copies = Counter(sinks.all_bodies())
    problems = [f"{body!r} is there {count} times" for body, count in copies.items() if count > 1]
    known = {body for rows in model.rows.values() for bodies in rows.values() for body in bodies}
    problems += [f"{body!r} was never written" for body in copies.keys() - known]
    shown: Counter[str] = Counter()
    for (sink, batch), rows in model.rows.items():
        bodies = [body for part in rows.values() for body in part]
        count = sum(body in copies for body in bodies)
        if count:
            shown[sink] = max(shown[sink], batch + 1)
        if model.is_cleaned:
            continue
        if count not in (0, len(bodies)):
            problems.append(f"{sink}/{batch}: {count} of {len(bodies)} rows are there")
        if (sink, batch) in model.acknowledged and not count:
            problems.append(f"{sink}/{batch} was acknowledged and is lost")
    for sink in SINKS:
        last = sinks.batches.status(sink).batch
        if last < model.last_acknowledged(sink):
            problems.append(f"the table has {sink}/{last}, {model.acknowledged} were acknowledged")
        if last + 1 < shown[sink] or (not model.is_cleaned and last + 1 != shown[sink]):
            problems.append(f"the table has {sink}/{last}, the log {sink}/{shown[sink] - 1}")
    return problems


@pytest.mark.parametrize("retention", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_once_or_not_at_all_after_every_crash(
    mode: str, retention: bool, long_run: bool, summary_lines: list[str]
) -> None:
    total = 0
    for seed in range(40 if long_run else 1):
        run = SinkRun(seed, MODES[mode], retention=retention)
        run.run(60 if long_run else 5)
        assert not run.problems, f"seed {seed}: " + "\n".join(run.problems[:10])
        total += run.verdicts
    kind = f"{mode}{', retention' if retention else ''}"
    summary_lines.append(f"sink batches, {kind}: {total} crash states")
    assert total > 100


# The test is tested: without what makes it right, it fails.


def _first_problem(mode: str, *, retention: bool = False) -> str:
    # With retention, seed 0 cleans nothing that matters, and takes long to find that out.
    for seed in range(1 if retention else 0, 7):
        run = SinkRun(seed, MODES[mode], retention=retention)
        try:
            run.run(20)
        except (StagingRefused, CorruptStore) as error:
            return str(error)
        if run.problems:
            return "\n".join(run.problems)
    return ""


def test_found_when_the_batch_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkBatches, "judge", SinkBatches.check_run)
    found = _first_problem("sync")
    assert "published again" in found or "twice" in found


def test_found_when_the_log_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkBatches, "_notes", lambda self, offset, high: iter(()))
    assert "the table has" in _first_problem("sync")


def test_found_when_the_table_is_not_saved_before_cleaning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MessageStore, "before_clean", lambda self, save: None)
    found = _first_problem("sync", retention=True)
    # Seen as a wrong table, or refused by the next start.
    assert "the table has" in found or "in neither the file nor the log" in found


def test_found_when_the_note_is_entered_before_it_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the table saved at once, a power cut leaves a batch that is nowhere."""

    enter = SinkBatches.enter

    def saved(self: SinkBatches, *note: Any) -> None:
        enter(self, *note)
        self.save()

    monkeypatch.setattr(SinkBatches, "enter", saved)
    monkeypatch.setattr(MessageStore, "when_durable", lambda self, result, call: call(None))
    monkeypatch.setattr(SinkBatches, "_forget_lost", lambda self, high: None)
    assert "the table has" in _first_problem("async")


def test_found_when_records_and_note_are_two_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    append = MessageStore.append_group

    def apart(self: MessageStore, runs: Any, note: bytes = b"", inspected: Any = ()) -> Any:
        if runs:
            append(self, runs, b"")
        return append(self, (), note)

    monkeypatch.setattr(MessageStore, "append_group", apart)
    found = _first_problem("sync")
    assert "the log" in found or "times" in found


def test_found_when_a_batch_is_several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    append = MessageStore.append_group

    def apart(self: MessageStore, runs: Any, note: bytes = b"", inspected: Any = ()) -> Any:
        for run in runs[:-1]:
            append(self, (run,), b"")
        return append(self, runs[-1:], note)

    monkeypatch.setattr(MessageStore, "append_group", apart)
    assert "rows are there" in _first_problem("sync")


def test_found_when_write_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows shown while they are staged are shown again by every repeat."""
    seal = SinkStore.stage

    def hasty(self: SinkStore, asked: Any, rows: Any) -> StagedPart:
        part = seal(self, asked, rows)
        with self.store.staging.open_runs([part]) as runs:
            assert self.store.append_group(runs, b"").ok
        self.store.flush()
        return part

    monkeypatch.setattr(SinkStore, "stage", hasty)
    assert "times" in _first_problem("sync")
