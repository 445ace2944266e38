"""Parked messages are delivered exactly once, wherever the broker is killed or the power is cut.

A seeded run parks, delivers, saves and restarts. Before every file operation that changes what a
crash may leave, the disk is taken as a kill and as power cuts would leave it; a new broker goes on
from there until nothing is pending. Some of these brokers are killed on the way, too. Then every
parked message that is in the log must be there exactly once more, under its own topic, each level
in order. The last part does the same to a real process with real kills.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.delay_progress import DelayProgress
from broker_core.broker.parked_message import parked_position
from broker_core.protocol_codes import FlushDiskType
from broker_core.store.message import Message
from broker_core.store.message_store import MessageStore
from tests.broker.parked_store import ParkedStore
from tests.crash.delay_process import check_delivered, serve
from tests.fakes.crash_states import CrashPoint
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedCrash, SimulatedDisk

pytestmark = pytest.mark.crash

MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    "async": {"flush_disk_type": FlushDiskType.ASYNC_FLUSH},
}
STATES_PER_POINT = 3
SECOND_CRASH_EVERY = 3
ALL_DUE_MS = 40_000


@dataclasses.dataclass
class _Point:
    """A moment of the run: what a kill leaves, what power cuts may leave, what was promised."""

    number: int
    killed: SimulatedDisk
    cut: CrashPoint
    disk: SimulatedDisk
    version: int
    safe: frozenset[bytes]


class DelayRun:
    """One broker after the other on one disk, watched."""

    def __init__(self, seed: int, settings: dict[str, Any]) -> None:
        self.rng = random.Random(seed)
        self.settings = {
            "commit_log_file_size": 16 << 10,
            "dispatch_checkpoint_interval_ms": 3_000,
            **settings,
        }
        self.safe: set[bytes] = set()
        self.verdicts = 0
        self.problems: list[str] = []
        self._number = 0
        self._point: _Point | None = None
        self._clock = ManualClock()
        disk = SimulatedDisk(clock=self._clock, seed=seed)
        self._watch(disk)
        self.broker = ParkedStore(disk, **self.settings).start()

    def run(self, steps: int) -> None:
        """Do as many things as `steps`, then judge the end as well."""
        doings = [self._park] * 4 + [self._pass_time] * 5 + [self._other_traffic] * 2
        doings += [self._restart, self._kill]
        for _ in range(steps):
            self.rng.choice(doings)()
            if self.problems:
                return
        self._judge_last()

    def _park(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self._number += 1
            body = b"%d" % self._number
            topic, queue_id = self.rng.choice((("T", 0), ("T", 1), ("U", 0)))
            self.broker.park(body, self.rng.randint(1, 4), topic, queue_id=queue_id)
            self.safe.add(body)

    def _pass_time(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.broker.advance(self.rng.choice((1, 200, 700, 1_000, 3_000)))
            self.broker.store._parts.tick()

    def _other_traffic(self) -> None:
        self.broker.store.append(Message("other", bytes(self.rng.choice((50, 3_000)))))

    def _restart(self) -> None:
        self.broker = self.broker.restart()

    def _kill(self) -> None:
        disk = self.broker.disk.kill()
        self._watch(disk)
        self.broker = self.broker.successor(disk)

    def _watch(self, disk: SimulatedDisk) -> None:
        disk.on_operation = lambda number: self._before(disk, number)

    def _before(self, disk: SimulatedDisk, number: int) -> None:
        point = self._point
        if point is not None and point.disk is disk and point.version == disk._version:
            return
        self._judge_last()
        self._point = _Point(
            number, disk.copy(), disk.crash_point(), disk, disk._version, frozenset(self.safe)
        )

    def _judge_last(self) -> None:
        point, self._point = self._point, None
        if point is None or self.problems:
            return
        disks = [("kill", point.killed)]
        for state in point.cut.states(STATES_PER_POINT, self.rng):
            disks.append((f"power cut, {state.describe()}", point.disk.reboot(state)))
        for what, disk in disks:
            found = self._judge(disk, point.safe)
            self.problems += [f"before operation {point.number}: {what}: {line}" for line in found]

    def _judge(self, disk: SimulatedDisk, safe: frozenset[bytes]) -> list[str]:
        """A broker goes on from `disk` until nothing is pending; what is wrong then."""
        self.verdicts += 1
        disk.clock = ManualClock(self._clock.wall_ms())
        if self.verdicts % SECOND_CRASH_EVERY == 0:
            disk.crash_at(self.rng.randint(1, 120))
            with contextlib.suppress(SimulatedCrash):
                _finish(ParkedStore(disk, **self.settings).start())
            disk = disk.kill()
        broker = ParkedStore(disk, **self.settings).start()
        _finish(broker)
        return problems_of(broker, safe)


def _finish(broker: ParkedStore) -> None:
    broker.advance(ALL_DUE_MS)
    broker.store.flush()


def problems_of(broker: ParkedStore, safe: frozenset[bytes]) -> list[str]:
    """What is wrong with a log in which everything should have been delivered."""
    records = [r for topic in ("T", "U") for q in (0, 1) for r in broker.records(topic, q)]
    copies = Counter(record.body for record in records)
    waiting = broker.parked_records()
    known = {record.body for record in waiting}
    problems = [f"{body!r} is lost" for body in sorted(safe - known)]
    problems += [
        f"{r.body!r} delivered {copies[r.body]} times" for r in waiting if copies[r.body] != 1
    ]
    problems += [f"nobody parked {body!r}" for body in copies.keys() - known]
    place = {record.physical_offset: (record.queue_id, record.queue_offset) for record in waiting}
    next_offset: dict[int, int] = {}
    for record in sorted(records, key=lambda record: record.physical_offset):
        position = parked_position(record.prepared_transaction_offset)
        queue_id, offset = place[position if position is not None else -1]
        if offset != next_offset.get(queue_id, 0):
            problems.append(f"level {queue_id + 1}: {offset} came out of order")
        next_offset[queue_id] = offset + 1
    if broker.delivery.pending_count:
        problems.append(f"{broker.delivery.pending_count} are still pending")
    return problems


@pytest.mark.parametrize("mode", MODES)
def test_exactly_once_after_every_crash(
    mode: str, long_run: bool, summary_lines: list[str]
) -> None:
    total = 0
    for seed in range(40 if long_run else 1):
        run = DelayRun(seed, MODES[mode])
        run.run(80 if long_run else 20)
        assert not run.problems, f"seed {seed}: " + "\n".join(run.problems[:10])
        total += run.verdicts
    summary_lines.append(f"delayed delivery, {mode}: {total} crash states")
    assert total > 200


# The test is tested: without what makes it right, it fails.


def _first_problem(mode: str) -> str:
    for seed in range(6):
        run = DelayRun(seed, MODES[mode])
        run.run(30)
        if run.problems:
            return "\n".join(run.problems)
    return ""


@pytest.mark.parametrize("mode", MODES)
def test_found_when_the_log_is_not_read(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DelayProgress, "_read_log", lambda self, position: None)
    assert "delivered 2 times" in _first_problem(mode)


def _cut_after_saving() -> list[str]:
    """Deliver and save with ASYNC_FLUSH, then lose whatever was not synced."""
    broker = ParkedStore(**MODES["async"]).start()
    broker.park(b"x", 1)
    broker.advance(3_000)
    assert broker.bodies() == [b"x"]
    nothing = next(iter(broker.disk.crash_states(2)))
    after = broker.successor(broker.disk.reboot(nothing))
    _finish(after)
    return problems_of(after, frozenset({b"x"}))


def test_found_when_offsets_are_saved_before_the_log_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _cut_after_saving() == []
    monkeypatch.setattr(MessageStore, "flushed_position", property(lambda s: s.log_range[1]))
    assert "b'x' delivered 0 times" in _cut_after_saving()


# Real processes


@pytest.mark.parametrize("mode", MODES)
def test_real_kills(mode: str, tmp_path: Path, long_run: bool) -> None:
    rng = random.Random(7)
    acknowledged: set[int] = set()
    for number in range(20 if long_run else 4):
        acknowledged |= _killed_process(tmp_path, mode, number, rng.uniform(0.2, 1.5))
    assert acknowledged
    problems, count = asyncio.run(check_delivered(tmp_path, mode, acknowledged))
    assert not problems, problems[:10]
    assert count >= len(acknowledged)


def _killed_process(root: Path, mode: str, number: int, seconds: float) -> set[int]:
    """Start a broker that parks and delivers, kill it after a while; what it acknowledged."""
    arguments = [sys.executable, "-m", serve.__module__, str(root), mode, str(number * 1_000_000)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        assert lines == ["ready\n"]
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        else:
            raise AssertionError(f"ended by itself: {process.returncode}")
        lines += process.stdout.readlines()
    # The last line may be cut.
    return {int(line) for line in lines[1:] if line.endswith("\n")}
