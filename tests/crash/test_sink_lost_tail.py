"""The broker that decides about a sink loses the end of its log, at every step of a batch.

As when a slave that lagged is promoted, a backup is restored, or a power cut takes what the disk
did not have. One writer publishes batches on two simulated disks. Before every file operation of
either broker the disks are taken as a kill leaves them, and the disk of the one that decides is
exchanged for one of its own earlier states. Then a new run repeats the last batch, with its rows
split in another way. A batch that is committed then is there exactly once. It may be refused only
when the other broker shows its part already: the rest is unknown then. Nothing is
ever there twice.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, NamedTuple

import pytest

from broker_core.broker.sink import publisher as sink_publisher
from broker_core.codec.wire.bodies.sink_messages import (
    COMPLETE,
    DECIDE,
    PREPARE,
    RESERVE,
    Publication,
)
from broker_core.errors import ConnectionLost, RmqError, SinkBatchOld, SinkFenced, StagingRefused
from broker_core.protocol_codes import FlushDiskType
from tests.broker.sink_cluster import DirectClient, SinkCluster
from tests.broker.sink_store import Rows, SinkStore, identity
from tests.broker.test_sink_spans import ask, reserve
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.crash

A, B = NAMES = ("broker-a", "broker-b")
ROWS = 4
T0: Any = ("T", 0)
MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    "no disk": {"flush_disk_type": FlushDiskType.ASYNC_FLUSH, "group_waits_for_disk": False},
}


def rows_of(batch: int) -> list[bytes]:
    return [b"%d/%d" % (batch, n) for n in range(ROWS)]


def split(batch: int, at: int) -> dict[str, Rows]:
    rows = rows_of(batch)
    parts = {A: rows[:at], B: rows[at:]}
    return {name: {T0: found} for name, found in parts.items() if found}


class _Moment(NamedTuple):
    disks: dict[str, SimulatedDisk]
    tried: int


class LostTail:
    """One writer, and every moment of its brokers' disks."""

    def __init__(self, seed: int, settings: dict[str, Any]) -> None:
        self.rng = random.Random(seed)
        self.settings = settings
        self.clock = ManualClock()
        self.tried = -1
        self.moments: list[_Moment] = []
        self.refused = self.verdicts = 0
        self._disks = {name: SimulatedDisk(clock=self.clock, seed=seed) for name in NAMES}
        self._versions: tuple[int, ...] = ()
        self.cluster = self._open(self._disks)
        for disk in self._disks.values():
            disk.on_operation = lambda number: self._before()

    def run(self, batches: int) -> list[str]:
        for batch in range(batches):
            self.tried = batch
            # Broker A has rows of the first batch, so it decides.
            at = self.rng.choice((1, 2, 3) if batch == 0 else (0, 1, 2, 3, ROWS))
            self.cluster.write(identity(batch, "run-0"), split(batch, at))
        self._before()
        problems: list[str] = []
        for number, moment in enumerate(self.moments):
            # The states just before it, and any earlier one.
            earlier = {*range(max(number - 3, 0), number + 1), self.rng.randrange(number + 1)}
            for lost in sorted(earlier):
                found = self._judge(self.moments[lost].disks[A], moment)
                problems += [f"at {number}, back to {lost}: {line}" for line in found]
            if problems:
                break
        return problems

    def _before(self) -> None:
        versions = tuple(disk._version for disk in self._disks.values())
        if versions != self._versions:
            self._versions = versions
            disks = {name: disk.copy() for name, disk in self._disks.items()}
            self.moments.append(_Moment(disks, self.tried))

    def _open(self, disks: dict[str, SimulatedDisk]) -> SinkCluster:
        return SinkCluster({n: SinkStore(disk, **self.settings) for n, disk in disks.items()})

    def _judge(self, lost: SimulatedDisk, moment: _Moment) -> list[str]:
        if moment.tried < 0:
            return []
        self.verdicts += 1
        disks = {A: lost.copy(), B: moment.disks[B].copy()}
        for disk in disks.values():
            disk.clock = ManualClock(self.clock.wall_ms())
        cluster = self._open(disks)
        rows = rows_of(moment.tried)
        shown = [row for row in cluster.brokers[B].all_bodies() if row in rows]
        problems = []
        try:
            at = self.rng.choice((0, 1, 2, 3, ROWS))
            cluster.write(identity(moment.tried, "run-1"), split(moment.tried, at))
        except SinkBatchOld as error:
            self.refused += 1
            if not shown:
                problems.append(f"refused, though nothing is shown: {error}")
        except RmqError as error:
            problems.append(f"{type(error).__name__}: {error}")
        else:
            copies = Counter(cluster.bodies())
            problems += [f"{row!r} is there {copies[row]} times" for row in rows if not copies[row]]
        twice = [row for row, count in Counter(cluster.bodies()).items() if count > 1]
        return problems + [f"{row!r} is there more than once" for row in twice]


@pytest.mark.parametrize("mode", MODES)
def test_once_or_refused_by_name(mode: str, long_run: bool, summary_lines: list[str]) -> None:
    verdicts = refused = 0
    for seed in range(40 if long_run else 1):
        run = LostTail(seed, MODES[mode])
        problems = run.run(8 if long_run else 3)
        assert not problems, f"seed {seed}: " + "\n".join(problems[:10])
        verdicts += run.verdicts
        refused += run.refused
    summary_lines.append(f"sink, lost tail, {mode}: {verdicts} states, {refused} refused")
    assert verdicts > 100
    # Some of them must be such that nothing else is right.
    assert 0 < refused < verdicts / 2


# One step at a time: the coordinator goes back to where it was before the step.

STEPS = ((A, RESERVE), (B, PREPARE), (A, DECIDE), (B, COMPLETE))


def two_brokers() -> SinkCluster:
    two = SinkCluster({name: SinkStore() for name in NAMES})
    two.write(identity(0), split(0, 2))
    return two


def back_to(two: SinkCluster, disk: SimulatedDisk) -> SinkCluster:
    """Broker A has the log of then, broker B that of now."""
    brokers = dict(two.brokers)
    brokers[A] = brokers[A].successor(disk.kill())
    return SinkCluster(brokers)


@pytest.mark.parametrize("step", STEPS)
def test_the_writer_stops_and_the_coordinator_loses_the_decision(step: tuple[str, str]) -> None:
    """The numbers of attempts come again; another split must not be completed under the old one."""
    two = two_brokers()
    before = two.brokers[A].disk.copy()

    def stop(name: str, publication: Publication) -> None:
        if (name, publication.phase) == step and publication.identity.batch == 1:
            raise ConnectionLost("the writer dies here")

    two.client.before = stop
    with pytest.raises(ConnectionLost):
        two.write(identity(1), split(1, 3))
    two = back_to(two, before)
    assert not two.write(identity(1, "run-2"), split(1, 1)).is_repeat
    assert sorted(two.bodies()) == sorted(rows_of(0) + rows_of(1))


def test_several_attempts_are_forgotten() -> None:
    """The next attempt has a lower number than the part that the other broker keeps."""
    two = two_brokers()
    before = two.brokers[A].disk.copy()
    for _ in range(5):
        attempt = reserve(two.brokers[A], identity(1))
        staged = two.stage(identity(1), split(1, 2))
        ask(two.brokers[B], attempt._replace(phase=PREPARE, parts=(staged[1],)))
    two = back_to(two, before)
    two.write(identity(1, "run-2"), split(1, 1))
    assert sorted(two.bodies()) == sorted(rows_of(0) + rows_of(1))


def test_a_late_decision_of_another_attempt_with_the_same_number() -> None:
    two = two_brokers()
    before = two.brokers[A].disk.copy()
    who = identity(1)
    staged = two.stage(who, split(1, 3))
    old = reserve(two.brokers[A], who)
    ask(two.brokers[B], old._replace(phase=PREPARE, parts=(staged[1],)))
    two = back_to(two, before)
    new = reserve(two.brokers[A], who)
    assert (new.token == old.token) and new.attempt != old.attempt
    with pytest.raises(SinkFenced, match="not the one that was reserved last"):
        ask(two.brokers[A], old._replace(phase=DECIDE, parts=(), others=(B,)))
    with pytest.raises(StagingRefused, match="not prepared here"):
        ask(two.brokers[B], new._replace(phase=COMPLETE))
    # And a run that was replaced completes nothing.
    two.stage(identity(1, "run-2"), {B: {T0: [b"x"]}})
    with pytest.raises(SinkFenced, match="replaced by run run-2"):
        ask(two.brokers[B], old._replace(phase=COMPLETE))


@pytest.mark.parametrize("at", [0, 1, ROWS])
def test_a_part_that_is_visible_already_is_not_repeated(at: int) -> None:
    """Also when the new split has no rows for the broker that shows its part."""
    two = two_brokers()
    before = two.brokers[A].disk.copy()
    two.write(identity(1), split(1, 3))
    two = back_to(two, before)
    with pytest.raises(SinkBatchOld, match=r"broker-a, which decides.* new sinkId"):
        two.write(identity(1, "run-2"), split(1, at))
    assert max(Counter(two.bodies()).values()) == 1


# The test is tested


def _first_problem() -> str:
    for seed in range(6):
        problems = LostTail(seed, {}).run(3)
        if problems:
            return "\n".join(problems)
    return ""


def test_found_when_attempts_have_numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_publisher, "_new_name", lambda: "name")
    assert "prepared here by run run-0 with other parts" in _first_problem()


def test_found_when_only_the_brokers_with_rows_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, sink: str, broker_name: str) -> None:
        return None

    monkeypatch.setattr(DirectClient, "_glance", nothing)
    assert "more than once" in _first_problem()
