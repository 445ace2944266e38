"""Each half message ends once, wherever the broker is killed or the power is cut.

A seeded run opens transactions, commits them, rolls them back, repeats itself, lets time pass and
restarts. Before every file operation that changes what a crash may leave, the disk is taken as a
kill and as power cuts would leave it. A new broker goes on from there, and gets every verdict once
more, as producers do when they are asked; some of these brokers are killed on the way, too. Then
every committed message must be there once, and no other; no commit that was answered is lost;
and what RocketMQ itself would make of the directory must be the same.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker_core.broker.transactions.progress import TransactionProgress
from broker_core.broker.transactions.service import Transactions, Verdict
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.topic_name import (
    SCHEDULE_TOPIC,
    TRANSACTION_GIVEN_UP_TOPIC,
    TRANSACTION_HALF_TOPIC,
)
from broker_core.store.message_store import MessageStore
from tests.broker.half_store import HalfStore
from tests.crash.transaction_process import check_committed, serve
from tests.crash.watched_run import MODES, WatchedRun, first_problem, killed_process, run_seeds
from tests.fakes.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.crash

QUEUES = (("T", 0), ("T", 1), ("U", 0))


class Verdicts(NamedTuple):
    """The requests of producers and, once they were durable, the answers."""

    wanted: dict[bytes, Verdict]
    answered: dict[bytes, Verdict]


class TransactionRun(WatchedRun[HalfStore, Verdicts]):
    """Opens transactions, ends them, repeats itself, lets time pass and restarts."""

    second_crash_within = 60

    def __init__(self, seed: int, settings: dict[str, Any]) -> None:
        self.verdicts: dict[bytes, Verdict] = {}
        self.answered: dict[bytes, Verdict] = {}
        self._number = 0
        super().__init__(seed, settings)

    def started(self, disk: SimulatedDisk) -> HalfStore:
        return HalfStore(disk, **self.settings).start()

    def doings(self) -> list[Callable[[], None]]:
        doings = [self._open] * 4 + [self._end] * 5 + [self._pass_time] * 3
        return [*doings, self.other_traffic, self._end_again, self.restart, self.kill]

    def promised(self) -> Verdicts:
        return Verdicts(dict(self.verdicts), dict(self.answered))

    def finish(self, broker: HalfStore, promise: Verdicts) -> None:
        _finish(broker, promise.wanted)

    def problems_of(self, broker: HalfStore, promise: Verdicts) -> list[str]:
        return problems_of(broker, *promise)

    def _open(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self._number += 1
            topic, queue_id = self.rng.choice(QUEUES)
            more = {"DELAY": "3"} if self.rng.random() < 0.2 else {}
            self.broker.send(b"%d" % self._number, topic, queue_id, **more)

    def _end(self) -> None:
        for offset in self.broker.open_offsets():
            if self.rng.random() < 0.5:
                verdict = self.rng.choice((Verdict.COMMIT, Verdict.COMMIT, Verdict.ROLLBACK))
                self._give(self.broker.half(offset).record, verdict)

    def _end_again(self) -> None:
        for record in self.broker.halves():
            if record.body in self.verdicts and self.rng.random() < 0.3:
                self._give(record, self.verdicts[record.body])

    def _give(self, record: MessageRecord, verdict: Verdict) -> None:
        verdict = self.verdicts.setdefault(record.body, verdict)
        ended = self.broker.end(record.queue_offset, verdict)
        assert ended.result.ok
        if self.rng.random() < 0.7:
            self.broker.store.flush()
            self.answered[record.body] = ended.verdict

    def _pass_time(self) -> None:
        if self.rng.random() < 0.5:
            self.broker.producer(port=self.rng.randint(1, 3))
        for _ in range(self.rng.randint(1, 4)):
            self.broker.advance(self.rng.choice((1, 1_000, 3_000, 31_000)))
            self.broker.store.scheduler.tick()
            self.broker.offsets.save()


def _finish(broker: HalfStore, verdicts: dict[bytes, Verdict]) -> None:
    """Every producer is asked and answers, twice, and what is in memory is saved."""
    for _ in range(2):
        for record in broker.halves():
            if record.body in verdicts:
                broker.end(record.queue_offset, verdicts[record.body])
        broker.store.flush()
    broker.advance(3_000)


def problems_of(
    broker: HalfStore, verdicts: dict[bytes, Verdict], answered: dict[bytes, Verdict]
) -> list[str]:
    """What is wrong with a log in which every verdict was given."""
    queues = [*QUEUES, *((SCHEDULE_TOPIC, q) for q in range(18))]
    copies = Counter(r.body for topic, q in queues for r in broker.records(topic, q))
    given_up = Counter(r.body for r in broker.records(TRANSACTION_GIVEN_UP_TOPIC))
    halves = [record.body for record in broker.halves()]
    problems = [f"{body!r} was never sent" for body in (copies | given_up).keys() - set(halves)]
    for body in halves:
        is_wanted = verdicts.get(body) is Verdict.COMMIT
        if copies[body] + given_up[body] > 1:
            problems.append(f"{body!r} ended {copies[body] + given_up[body]} times")
        if copies[body] and not is_wanted:
            problems.append(f"{body!r} was never committed")
        if is_wanted and not copies[body] and not given_up[body]:
            problems.append(f"{body!r} is not committed")
    for body, verdict in answered.items():
        if verdict is Verdict.COMMIT and copies[body] != 1:
            problems.append(f"{body!r} was answered and is there {copies[body]} times")
    if broker.open_offsets() != broker.open_for_apache():
        text = f"open {broker.open_offsets()}, for RocketMQ {broker.open_for_apache()}"
        problems.append(text)
    return problems


@pytest.mark.parametrize("mode", MODES)
def test_each_half_ends_once_after_every_crash(
    mode: str, long_run: bool, summary_lines: list[str]
) -> None:
    seeds, steps = (40, 80) if long_run else (1, 25)
    total = run_seeds(lambda seed: TransactionRun(seed, MODES[mode]), seeds, steps)
    summary_lines.append(f"transactions, {mode}: {total} crash states")
    assert total > 200


# The test is tested: without what makes it right, it fails.


def _first_problem(mode: str) -> str:
    return first_problem(lambda seed: TransactionRun(seed, MODES[mode]), 40)


@pytest.mark.parametrize("mode", MODES)
def test_found_when_the_log_is_not_read(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionProgress, "_read_log", lambda self: None)
    assert "ended 2 times" in _first_problem(mode)


def test_found_when_op_records_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionProgress, "_read_ops", lambda self, low: None)
    monkeypatch.setattr(TransactionProgress, "_read_log", lambda self: None)
    assert "ended 2 times" in _first_problem("sync")


def test_found_when_an_op_record_is_written_before_its_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append = Transactions._append_outcome

    def op_first(self: Transactions, half: Any, verdict: Verdict) -> Any:
        if verdict is Verdict.COMMIT:
            self._append_op(half.record.queue_offset)
        return append(self, half, verdict)

    monkeypatch.setattr(Transactions, "_append_outcome", op_first)
    assert "is not committed" in _first_problem("sync")


def _cut_after_saving() -> list[str]:
    """Commit and save with ASYNC_FLUSH, then lose what was not synced."""
    broker = HalfStore(**MODES["async"]).start()
    offset = broker.send(b"x")
    broker.end(offset)
    broker.advance(1_000)
    broker.offsets.save()
    nothing = next(iter(broker.disk.crash_states(2)))
    after = broker.successor(broker.disk.reboot(nothing))
    verdicts = {b"x": Verdict.COMMIT}
    _finish(after, verdicts)
    return problems_of(after, verdicts, {})


def test_found_when_offsets_are_saved_before_the_log_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _cut_after_saving() == []
    monkeypatch.setattr(MessageStore, "flushed_position", property(lambda s: s.log_range[1]))
    assert "b'x' is not committed" in _cut_after_saving()


def test_a_half_at_position_zero_is_found() -> None:
    broker = HalfStore().start()
    broker.send(b"x")
    assert broker.store.units(TRANSACTION_HALF_TOPIC, 0, 0, 1)[0][0] > 0
    broker.stop()


# Real processes


@pytest.mark.parametrize("mode", MODES)
def test_real_kills(mode: str, tmp_path: Path, long_run: bool) -> None:
    rng = random.Random(7)
    acknowledged: set[int] = set()
    for number in range(20 if long_run else 4):
        first, seconds = number * 3_000_000, rng.uniform(0.2, 1.5)
        acknowledged |= killed_process(serve.__module__, tmp_path, mode, first, seconds)
    assert acknowledged
    problems, still_open = asyncio.run(check_committed(tmp_path, mode, acknowledged))
    assert not problems, problems[:10]
    assert still_open
