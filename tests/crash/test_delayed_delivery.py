"""Delayed messages are delivered exactly once, wherever the broker is killed or the power is cut.

A seeded run delays, delivers, saves and restarts. Before every file operation that changes what a
crash may leave, the disk is taken as a kill and as power cuts would leave it; a new broker goes on
from there until nothing is pending. Some of these brokers are killed on the way, too. Then every
delayed message that is in the log must be there exactly once more, under its own topic, each level
in order. The last part does the same to a real process with real kills.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.scheduled.delay_progress import DelayProgress
from broker_core.broker.scheduled.delayed_message import waiting_position
from broker_core.store.message_store import MessageStore
from tests.broker.delay_store import DelayStore
from tests.crash.delay_process import check_delivered, serve
from tests.crash.watched_run import MODES, WatchedRun, first_problem, killed_process, run_seeds
from tests.fakes.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.crash

ALL_DUE_MS = 40_000


class DelayRun(WatchedRun[DelayStore, frozenset[bytes]]):
    """Delays, delivers, saves and restarts."""

    second_crash_within = 120

    def __init__(self, seed: int, settings: dict[str, Any]) -> None:
        self.safe: set[bytes] = set()
        self._number = 0
        super().__init__(seed, settings)

    def started(self, disk: SimulatedDisk) -> DelayStore:
        return DelayStore(disk, **self.settings).start()

    def doings(self) -> list[Callable[[], None]]:
        doings = [self._park] * 4 + [self._pass_time] * 5 + [self.other_traffic] * 2
        return [*doings, self.restart, self.kill]

    def promised(self) -> frozenset[bytes]:
        return frozenset(self.safe)

    def finish(self, broker: DelayStore, promise: frozenset[bytes]) -> None:
        _finish(broker)

    def problems_of(self, broker: DelayStore, promise: frozenset[bytes]) -> list[str]:
        return problems_of(broker, promise)

    def _park(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self._number += 1
            body = b"%d" % self._number
            topic, queue_id = self.rng.choice((("T", 0), ("T", 1), ("U", 0)))
            self.broker.delay(body, self.rng.randint(1, 4), topic, queue_id=queue_id)
            self.safe.add(body)

    def _pass_time(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.broker.advance(self.rng.choice((1, 200, 700, 1_000, 3_000)))
            self.broker.store.scheduler.tick()


def _finish(broker: DelayStore) -> None:
    broker.advance(ALL_DUE_MS)
    broker.store.flush()


def problems_of(broker: DelayStore, safe: frozenset[bytes]) -> list[str]:
    """What is wrong with a log in which everything should have been delivered."""
    records = [r for topic in ("T", "U") for q in (0, 1) for r in broker.records(topic, q)]
    copies = Counter(record.body for record in records)
    waiting = broker.delayed_records()
    known = {record.body for record in waiting}
    problems = [f"{body!r} is lost" for body in sorted(safe - known)]
    problems += [
        f"{r.body!r} delivered {copies[r.body]} times" for r in waiting if copies[r.body] != 1
    ]
    problems += [f"{body!r} was never delayed" for body in copies.keys() - known]
    place = {record.physical_offset: (record.queue_id, record.queue_offset) for record in waiting}
    next_offset: dict[int, int] = {}
    for record in sorted(records, key=lambda record: record.physical_offset):
        position = waiting_position(record.prepared_transaction_offset)
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
    seeds, steps = (40, 80) if long_run else (1, 20)
    total = run_seeds(lambda seed: DelayRun(seed, MODES[mode]), seeds, steps)
    summary_lines.append(f"delayed delivery, {mode}: {total} crash states")
    assert total > 200


# The test is tested: without what makes it right, it fails.


def _first_problem(mode: str) -> str:
    return first_problem(lambda seed: DelayRun(seed, MODES[mode]), 30)


@pytest.mark.parametrize("mode", MODES)
def test_found_when_the_log_is_not_read(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DelayProgress, "_read_log", lambda self, position: None)
    assert "delivered 2 times" in _first_problem(mode)


def _cut_after_saving() -> list[str]:
    """Deliver and save with ASYNC_FLUSH, then lose what was not synced."""
    broker = DelayStore(**MODES["async"]).start()
    broker.delay(b"x", 1)
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
        first, seconds = number * 1_000_000, rng.uniform(0.2, 1.5)
        acknowledged |= killed_process(serve.__module__, tmp_path, mode, first, seconds)
    assert acknowledged
    problems, count = asyncio.run(check_delivered(tmp_path, mode, acknowledged))
    assert not problems, problems[:10]
    assert count >= len(acknowledged)
