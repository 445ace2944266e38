"""A batch on two brokers is there exactly once in the end, wherever either of them is killed.

One writer publishes batches on two simulated disks. Before every file operation of either broker
the disks are taken: as a kill leaves them, and as power cuts of the one that is at work, or of
both, may. From there a new run repeats the last batches as Spark does, with its rows split between
the brokers in another way. Then every row must be there once, and before that, what the deciding
broker shows of a batch must be all or nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections import Counter
from typing import Any

import pytest

from broker_core.broker.sink.publisher import SinkPublisher
from broker_core.codec.wire.bodies.sink_messages import DECIDE, Publication
from broker_core.errors import RmqError
from broker_core.protocol_codes import FlushDiskType
from broker_core.storage.staging.staging_area import StagingArea
from tests.broker import test_sink_spans
from tests.broker.sink_cluster import DirectClient, SinkCluster
from tests.broker.sink_store import Rows, SinkStore, identity
from tests.fakes.crash_states import CrashPoint
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedCrash, SimulatedDisk

pytestmark = pytest.mark.crash

NAMES = ("broker-a", "broker-b")
ROWS = 4
STATES_PER_POINT = 2
SECOND_CRASH_EVERY = 3
MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    "async": {"flush_disk_type": FlushDiskType.ASYNC_FLUSH},
}


def rows_of(batch: int) -> list[bytes]:
    return [b"%d/%d" % (batch, n) for n in range(ROWS)]


def split(rows: list[bytes], at: int) -> dict[str, Rows]:
    """The first `at` rows to one broker, the others to the other."""
    parts = {NAMES[0]: rows[:at], NAMES[1]: rows[at:]}
    return {name: {("T", 0): found} for name, found in parts.items() if found}


@dataclasses.dataclass
class _Point:
    at_work: str
    disks: dict[str, SimulatedDisk]
    killed: dict[str, SimulatedDisk]
    cuts: dict[str, CrashPoint]
    acknowledged: int
    tried: int


class SpanRun:
    """One writer, two brokers, watched."""

    def __init__(self, seed: int, settings: dict[str, Any]) -> None:
        self.rng = random.Random(seed)
        self.settings = settings
        self.clock = ManualClock()
        self.problems: list[str] = []
        self.verdicts = 0
        self.acknowledged = self.tried = -1
        self._points: list[_Point] = []
        self._versions: tuple[int, ...] = ()
        self._disks = {name: SimulatedDisk(clock=self.clock, seed=seed) for name in NAMES}
        self.cluster = SinkCluster(
            {name: SinkStore(disk, **settings) for name, disk in self._disks.items()}
        )
        for name, disk in self._disks.items():
            disk.on_operation = lambda number, name=name: self._before(name)

    def run(self, batches: int) -> None:
        for batch in range(batches):
            self.tried = batch
            rows = split(rows_of(batch), self.rng.choice((0, 1, 2, 3, ROWS)))
            self.cluster.write(identity(batch, "run-0"), rows)
            self.acknowledged = batch
            self._judge_points()
            if self.problems:
                return

    def _before(self, name: str) -> None:
        versions = tuple(disk._version for disk in self._disks.values())
        if versions == self._versions:
            return
        self._versions = versions
        disks = self._disks
        self._points.append(
            _Point(
                name,
                disks,
                {name: disk.copy() for name, disk in disks.items()},
                {name: disk.crash_point() for name, disk in disks.items()},
                self.acknowledged,
                self.tried,
            )
        )

    def _judge_points(self) -> None:
        points, self._points = self._points, []
        for point in points:
            worlds = [("kill", point.killed)]
            for state in point.cuts[point.at_work].states(STATES_PER_POINT, self.rng):
                cut = point.disks[point.at_work].reboot(state)
                world = {n: disk.copy() for n, disk in point.killed.items()}
                worlds.append((f"power cut of {point.at_work}", {**world, point.at_work: cut}))
            both = {
                name: point.disks[name].reboot(self.rng.choice(list(cut.states(3, self.rng))))
                for name, cut in point.cuts.items()
            }
            worlds.append(("power cut of both", both))
            for what, disks in worlds:
                self.problems += [f"{what}: {line}" for line in self._judge(disks, point)]
            if self.problems:
                return

    def _judge(self, disks: dict[str, SimulatedDisk], point: _Point) -> list[str]:
        self.verdicts += 1
        for disk in disks.values():
            disk.clock = ManualClock(self.clock.wall_ms())
        if self.verdicts % SECOND_CRASH_EVERY == 0:
            dying = self.rng.choice(NAMES)
            disks[dying].crash_at(self.rng.randint(1, 100))
            with contextlib.suppress(SimulatedCrash):
                cluster = self._open(disks)
                self._replay(cluster, point, "run-1")
            disks = {name: disk.kill() for name, disk in disks.items()}
        cluster = self._open(disks)
        problems = _shown(cluster, point)
        self._replay(cluster, point, "run-2")
        copies = Counter(cluster.bodies())
        expected = [row for batch in range(point.tried + 1) for row in rows_of(batch)]
        problems += [
            f"{row!r} is there {copies[row]} times" for row in expected if copies[row] != 1
        ]
        problems += [f"{row!r} was never written" for row in copies.keys() - set(expected)]
        return problems

    def _open(self, disks: dict[str, SimulatedDisk]) -> SinkCluster:
        return SinkCluster({n: SinkStore(disk, **self.settings) for n, disk in disks.items()})

    def _replay(self, cluster: SinkCluster, point: _Point, run: str) -> None:
        """The next run repeats the batch that was tried last: its number is in Spark's log."""
        if point.tried < 0:
            return
        rows = split(rows_of(point.tried), self.rng.choice((0, 1, 2, 3, ROWS)))
        try:
            answer = cluster.write(identity(point.tried, run), rows)
        except RmqError as error:
            self.problems.append(f"{type(error).__name__}: {error}")
            return
        if point.acknowledged == point.tried and not answer.is_repeat:
            self.problems.append(f"{point.tried} was acknowledged and published again")


def _shown(cluster: SinkCluster, point: _Point) -> list[str]:
    """Nothing twice, nothing acknowledged missing, nothing of a batch that is not decided."""
    copies = Counter(cluster.bodies())
    problems = [
        f"{row!r} is there {n} times before the replay" for row, n in copies.items() if n > 1
    ]
    last = max(broker.batches.status("S").batch for broker in cluster.brokers.values())
    for batch in range(point.acknowledged + 1):
        problems += [f"{row!r} is lost" for row in rows_of(batch) if not copies[row]]
    problems += [
        f"{row!r} is visible, {last} is the last decided"
        for row in copies
        if int(row.split(b"/")[0]) > last
    ]
    return problems


@pytest.mark.parametrize("mode", MODES)
def test_once_on_two_brokers(mode: str, long_run: bool, summary_lines: list[str]) -> None:
    total = 0
    for seed in range(40 if long_run else 1):
        run = SpanRun(seed, MODES[mode])
        run.run(8 if long_run else 3)
        assert not run.problems, f"seed {seed}: " + "\n".join(run.problems[:10])
        total += run.verdicts
    summary_lines.append(f"sink on two brokers, {mode}: {total} crash states")
    assert total > 100


# The test is tested


def _first_problem(mode: str = "sync") -> str:
    for seed in range(6):
        run = SpanRun(seed, MODES[mode])
        run.run(3)
        if run.problems:
            return "\n".join(run.problems)
    return ""


def test_found_when_parts_are_not_made_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StagingArea, "make_durable", lambda self, ids: None)
    assert "StagingRefused" in _first_problem()


def test_found_when_every_broker_decides_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broker compares batch numbers on its own: a replay with another split goes wrong."""

    async def alone(self: Any, who: Any, coordinator: str, own: Any, parts: Any) -> Any:
        for name, found in {coordinator: own, **parts}.items():
            answer = await self._publish(name, Publication(who, tuple(found)))
        return answer

    async def first(self: Any, who: Any, names: Any, **_: Any) -> str:
        return NAMES[0]

    monkeypatch.setattr(DirectClient, "_publish_across", alone)
    monkeypatch.setattr(DirectClient, "settle_coordinator", first)
    assert "times" in _first_problem()


def test_found_when_any_attempt_may_be_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown directly: the crash states alone have no second writer."""
    decide = SinkPublisher._decide

    async def anyone(self: SinkPublisher, asked: Any) -> Any:
        sink = self._batches.find(asked.identity.sink)
        if asked.phase == DECIDE and sink is not None:
            sink.reserved = (asked.identity.batch, asked.token, asked.attempt)
        return await decide(self, asked)

    monkeypatch.setattr(SinkPublisher, "_decide", anyone)
    with pytest.raises(pytest.fail.Exception):
        test_sink_spans.test_an_attempt_that_was_replaced_cannot_be_decided()


def test_found_when_the_decision_comes_before_the_preparation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = SinkPublisher._prepare

    async def later(self: SinkPublisher, asked: Any) -> Any:
        # Says yes and does nothing.
        if asked.identity.batch == 1:
            return (await prepared(self, asked._replace(parts=())))._replace(token=asked.token)
        return await prepared(self, asked)

    monkeypatch.setattr(SinkPublisher, "_prepare", later)
    assert "times" in _first_problem()
