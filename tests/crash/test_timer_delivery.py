"""Timer messages are delivered exactly once, wherever the broker is killed or the power is cut.

A seeded run stores timer messages, delivers, recalls, saves, merges and restarts, with runs so
small that a few messages fill many. Before every file operation that changes what a crash may
leave, the disk is taken as a kill and as power cuts would leave it; a new broker goes on from
there until nothing is pending. Then every timer message that is in the log must be there exactly
once more, under its own topic, unless it was recalled. The last part does the same to a real
process with real kills, and counts what a million of them cost.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.scheduled import timer_progress, timer_runs
from broker_core.broker.scheduled.delayed_message import waiting_position
from broker_core.broker.scheduled.timer_message import is_recall
from broker_core.broker.scheduled.timer_progress import TimerProgress
from broker_core.store.message_store import MessageStore
from tests.broker.timer_store import TimerStore
from tests.crash.timer_process import check_delivered, serve
from tests.crash.watched_run import MODES, WatchedRun, first_problem, killed_process, run_seeds
from tests.fakes.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.crash

ALL_DUE_MS = 40_000
Promise = tuple[frozenset[bytes], frozenset[bytes]]


class TimerRun(WatchedRun[TimerStore, Promise]):
    """Stores, recalls, delivers, saves and restarts."""

    second_crash_within = 120

    def __init__(self, seed: int, settings: dict[str, Any]) -> None:
        self.safe: set[bytes] = set()
        self.recalled: set[bytes] = set()
        self._due: dict[bytes, int] = {}
        self._number = 0
        super().__init__(seed, settings)

    def started(self, disk: SimulatedDisk) -> TimerStore:
        return TimerStore(disk, **self.settings).start()

    def doings(self) -> list[Callable[[], None]]:
        doings = [self._put] * 5 + [self._pass_time] * 5 + [self.other_traffic, self._recall]
        return [*doings, self.restart, self.kill]

    def promised(self) -> Promise:
        return frozenset(self.safe), frozenset(self.recalled)

    def finish(self, broker: TimerStore, promise: Promise) -> None:
        broker.advance(ALL_DUE_MS)
        broker.store.flush()

    def problems_of(self, broker: TimerStore, promise: Promise) -> list[str]:
        return problems_of(broker, *promise)

    def _put(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self._number += 1
            body = b"%d" % self._number
            in_ms = self.rng.choice((1, 300, 1_500, 8_000, 30_000))
            self._due[body] = self.broker.clock.wall_ms() + in_ms
            self.broker.put(body, in_ms)
            self.safe.add(body)

    def _recall(self) -> None:
        now_ms = self.broker.clock.wall_ms()
        waiting = [body for body in self.safe - self.recalled if self._due[body] > now_ms + 10]
        if waiting:
            body = self.rng.choice(sorted(waiting))
            assert self.broker.recall(body).message_count == 1
            self.recalled.add(body)

    def _pass_time(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.broker.advance(self.rng.choice((1, 200, 700, 1_000, 3_000)))
            self.broker.store.scheduler.tick()


def problems_of(
    broker: TimerStore, safe: frozenset[bytes], recalled: frozenset[bytes]
) -> list[str]:
    """What is wrong with a log in which everything should have been delivered."""
    copies = Counter(record.body for record in broker.records())
    records = broker.waiting_records()
    waiting = [record for record in records if not is_recall(record.property_text)]
    taken = {
        waiting_position(record.prepared_transaction_offset)
        for record in records
        if is_recall(record.property_text)
    }
    known = {record.body for record in waiting}
    problems = [f"{body!r} is lost" for body in sorted(safe - known)]
    for record in waiting:
        expected = 0 if record.physical_offset in taken else 1
        if record.body in recalled and expected:
            problems.append(f"the recall of {record.body!r} is lost")
        if copies[record.body] != expected:
            problems.append(f"{record.body!r} delivered {copies[record.body]} times")
    problems += [f"{body!r} was never stored" for body in copies.keys() - known]
    if broker.delivery.pending_count:
        problems.append(f"{broker.delivery.pending_by_topic} are still counted")
    return problems


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_progress, "FRESH_MAX", 4)
    monkeypatch.setattr(timer_runs, "MERGED_COUNT", 2)
    monkeypatch.setattr(timer_runs, "_BUFFER_COUNT", 2)


@pytest.mark.parametrize("mode", MODES)
def test_exactly_once_after_every_crash(
    mode: str, long_run: bool, summary_lines: list[str]
) -> None:
    seeds, steps = (40, 80) if long_run else (1, 11)
    total = run_seeds(lambda seed: TimerRun(seed, MODES[mode]), seeds, steps)
    summary_lines.append(f"timer delivery, {mode}: {total} crash states")
    assert total > 200


# The test is tested: without what makes it right, it fails.


def _first_problem(mode: str) -> str:
    return first_problem(lambda seed: TimerRun(seed, MODES[mode]), 30)


@pytest.mark.parametrize("mode", MODES)
def test_found_when_the_log_is_not_read(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimerProgress, "_read_log", lambda self, first: None)
    assert "delivered 2 times" in _first_problem(mode)


def _cut_after_saving() -> list[str]:
    """Deliver and save with ASYNC_FLUSH, then lose what was not synced."""
    broker = TimerStore(**MODES["async"]).start()
    broker.put(b"x", 500)
    broker.advance(600)
    assert broker.bodies() == [b"x"]
    assert broker.delivery._progress is not None
    broker.delivery._progress._wants_save = True
    broker.delivery._save_when_due()
    nothing = next(iter(broker.disk.crash_states(2)))
    after = broker.successor(broker.disk.reboot(nothing))
    after.advance(ALL_DUE_MS)
    after.store.flush()
    return problems_of(after, frozenset({b"x"}), frozenset())


def test_a_power_cut_after_a_save(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _cut_after_saving() == []
    # Progress ahead of the log would not be trusted either.
    monkeypatch.setattr(MessageStore, "flushed_position", property(lambda s: s.log_range[1]))
    assert _cut_after_saving() == []


def test_recalls_in_use_are_saved() -> None:
    broker = TimerStore().start()
    for number in range(3):
        broker.put(b"%d" % number, 5_000)
    broker.advance(10)
    broker.recall(b"1")
    assert broker.delivery._progress is not None
    pending = broker.delivery._progress.pending
    broker.clock.advance(6_000)
    # The recall is out, its message is not: a slice may end in between.
    broker.delivery._note_recalled(pending.take())
    broker.delivery._progress.save_now(broker.delivery._recalled)
    after = broker.killed()
    after.advance(100)
    assert after.bodies() == [b"0", b"2"]
    after.stop()


# Real processes


@pytest.mark.parametrize("mode", MODES)
def test_real_kills(mode: str, tmp_path: Path, long_run: bool) -> None:
    rng = random.Random(7)
    acknowledged: set[int] = set()
    for number in range(20 if long_run else 4):
        first, seconds = number * 1_000_000, rng.uniform(0.2, 1.5)
        acknowledged |= killed_process(serve.__module__, tmp_path, mode, first, seconds)
    assert acknowledged
    problems, count = asyncio.run(check_delivered(tmp_path, mode, acknowledged))
    assert not problems, problems[:10]
    assert count >= len(acknowledged)


def test_the_cost_of_many_timers(tmp_path: Path, long_run: bool, summary_lines: list[str]) -> None:
    """Memory, start, rebuild and punctuality; a million of them in the long run."""
    count, soon = (1_000_000, 20_000) if long_run else (40_000, 1_000)
    command = [sys.executable, "-m", "tests.crash.timer_process", str(tmp_path), "many"]
    done = subprocess.run(
        [*command, str(count), str(soon)], capture_output=True, text=True, timeout=900, check=True
    )
    figures = json.loads(done.stdout)
    summary_lines.append(f"{count} timers: {done.stdout.strip()}")
    assert figures["delivered"] == soon
    assert figures["pending_after"] == count
    assert figures["rebuilt_pending"] == count
    assert figures["early_ms"] <= 0
    assert figures["memory_mb"] < 60
