"""Timer messages are delivered when due, once and in order, under all faults."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.broker import timed_service
from broker_core.broker.scheduled import timer_progress, timer_runs
from broker_core.broker.scheduled.timer_progress import TIMER_PROGRESS_FILE
from broker_core.protocol_codes import FlushDiskType
from broker_core.storage.files.atomic_file import read_file
from tests.broker.timer_store import TimerStore
from tests.fakes.manual_worker import ManualWorker

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture(params=[{}, ASYNC], ids=["sync", "async"])
def broker(request: pytest.FixtureRequest) -> Iterator[TimerStore]:
    made = TimerStore(**request.param).start()
    yield made
    made.stop()


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which a few dozen messages do what millions do."""
    monkeypatch.setattr(timer_progress, "FRESH_MAX", 8)
    monkeypatch.setattr(timer_runs, "MERGED_COUNT", 3)
    monkeypatch.setattr(timer_runs, "_BUFFER_COUNT", 2)


def _saved(broker: TimerStore) -> dict[str, Any]:
    found = read_file(broker.disk, TIMER_PROGRESS_FILE)
    assert found is not None
    content: dict[str, Any] = json.loads(found)
    return content


def test_a_message_comes_exactly_when_it_is_due(broker: TimerStore) -> None:
    broker.put(b"x", 4_321)
    broker.advance(4_320)
    assert broker.bodies() == []
    broker.advance(1)
    assert broker.bodies() == [b"x"]
    assert (broker.delivery.delivered_count, broker.delivery.pending_count) == (1, 0)


def test_a_whole_second_is_a_millisecond_late_at_most(broker: TimerStore) -> None:
    broker.clock.set_wall(1_700_000_000_000)
    broker.put(b"x", 2_000)
    broker.advance(2_001)
    assert broker.bodies() == [b"x"]


def test_messages_come_by_time_and_then_as_they_were_sent(broker: TimerStore) -> None:
    for number, in_ms in enumerate((500, 30, 500, 7, 30, 900)):
        broker.put(b"%d" % number, in_ms)
    broker.advance(1_000)
    assert broker.bodies() == [b"3", b"1", b"4", b"0", b"2", b"5"]


def test_a_nearer_one_is_not_held_up_by_one_further_away(broker: TimerStore) -> None:
    broker.put(b"far", DAY_MS)
    broker.advance(10)
    broker.put(b"near", 100)
    broker.advance(100)
    assert broker.bodies() == [b"near"]


def test_the_copy_is_as_it_was_sent(broker: TimerStore) -> None:
    broker.put(b"x", 1_234, TAGS="A", KEYS="k1 k2", own="1")
    broker.advance(1_234)
    (copy,) = broker.records()
    (waiting,) = broker.waiting_records()
    assert copy.properties == waiting.properties
    assert copy.properties["TAGS"] == "A"
    assert copy.properties["own"] == "1"
    assert copy.prepared_transaction_offset == ~waiting.physical_offset
    assert broker.store.units("T", 0, 0, 1)[0][2] == 65
    assert [found.body for found in broker.store.query("T", "k2")] == [b"x"]
    assert broker.stats.stats()["topic_put"]["T"]["messages"] == 1


def test_many_due_at_once_let_others_run(broker: TimerStore) -> None:
    count = 500
    for number in range(count):
        broker.append(b"%d" % number, 1_000)
    broker.store.flush()
    broker.advance(998)
    turns = broker.timers.turns
    broker.advance(3)
    assert broker.bodies() == [b"%d" % number for number in range(count)]
    assert broker.timers.turns - turns >= count // timed_service.SLICE_COUNT_MAX


def test_waiting_takes_one_timer_and_no_polling(broker: TimerStore) -> None:
    for number in range(50):
        broker.put(b"%d" % number, HOUR_MS + number)
    broker.advance(10)
    before = broker.timers.turns
    broker.advance(60_000)
    # A look at the clock and at what is to be saved, every second, and a turn to read the queue.
    assert broker.timers.turns - before <= 122


def test_pending_messages_are_counted_by_topic(broker: TimerStore) -> None:
    for topic, in_ms in (("A", 100), ("A", 5_000), ("B", 5_000)):
        broker.put(b"x", in_ms, topic=topic)
    broker.advance(10)
    assert broker.delivery.pending_by_topic == {"A": 2, "B": 1}
    broker.advance(200)
    assert broker.delivery.pending_by_topic == {"A": 1, "B": 1}
    assert broker.delivery.pending_count == 2
    assert broker.delivery.queue_behind == 0
    broker.advance(5_000)
    assert broker.delivery.pending_by_topic == {}


# Ends


def test_a_restart_delivers_exactly_what_was_pending(broker: TimerStore) -> None:
    for number in range(6):
        broker.put(b"%d" % number, 1_000 * number + 500)
    broker.advance(2_600)
    assert broker.bodies() == [b"0", b"1", b"2"]
    after = broker.restart()
    assert after.delivery.pending_count == 3
    after.advance(10_000)
    assert after.bodies() == [b"%d" % number for number in range(6)]
    after.stop()


@pytest.mark.parametrize("after_ms", [0, 700, 1_600, 9_000])
def test_a_kill_delivers_exactly_what_was_pending(after_ms: int) -> None:
    broker = TimerStore(**ASYNC).start()
    for number in range(6):
        broker.put(b"%d" % number, 1_000 * number + 500)
    broker.advance(after_ms)
    after = broker.killed()
    after.advance(10_000)
    assert after.bodies() == [b"%d" % number for number in range(6)]
    again = after.killed()
    again.advance(10_000)
    assert again.bodies() == [b"%d" % number for number in range(6)]
    assert again.delivery.pending_by_topic == {}
    again.stop()


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("seed", range(12))
def test_runs_merges_kills_and_recalls_lose_and_repeat_nothing(seed: int) -> None:
    chance = random.Random(seed)
    broker = TimerStore(**(ASYNC if seed % 2 else {})).start()
    wanted: dict[bytes, int] = {}
    for number in range(150):
        body, in_ms = b"%d" % number, chance.randrange(1, 20_000)
        wanted[body] = broker.clock.wall_ms() + in_ms
        broker.put(body, in_ms)
        if chance.random() < 0.2:
            gone = chance.choice(sorted(wanted))
            if wanted[gone] > broker.clock.wall_ms() + 50:
                broker.recall(gone)
                del wanted[gone]
        broker.advance(chance.randrange(200))
        if chance.random() < 0.08:
            broker = broker.killed() if chance.random() < 0.7 else broker.restart()
    left = sum(due_ms > broker.clock.wall_ms() for due_ms in wanted.values())
    assert abs(broker.delivery.pending_count - left) <= 1
    broker.advance(21_000)
    assert sorted(broker.bodies()) == sorted(wanted)
    assert broker.delivery.pending_by_topic == {}
    broker.stop()


@pytest.mark.usefixtures("small_runs")
def test_everything_is_found_again_in_the_log_when_the_files_are_gone() -> None:
    broker = TimerStore().start()
    for number in range(60):
        broker.put(b"%02d" % number, 100 * number + 50)
    broker.recall(b"55")
    broker.advance(3_000)
    delivered = broker.bodies()
    assert len(delivered) == 30
    for name in broker.disk.list(timer_runs.RUNS_DIR):
        broker.disk.unlink(f"{timer_runs.RUNS_DIR}/{name}")
    after = broker.killed()
    assert after.delivery.pending_count == 29
    after.advance(3_000)
    expected = [b"%02d" % number for number in range(60) if number != 55]
    assert after.bodies() == expected
    for name in (TIMER_PROGRESS_FILE, f"{TIMER_PROGRESS_FILE}.bak"):
        if after.disk.exists(name):
            after.disk.unlink(name)
    last = after.killed()
    last.advance(10_000)
    assert last.bodies() == expected
    last.stop()


@pytest.mark.usefixtures("small_runs")
def test_a_damaged_run_is_built_again(caplog: pytest.LogCaptureFixture) -> None:
    broker = TimerStore().start()
    for number in range(30):
        broker.put(b"%02d" % number, 10_000 + number)
    broker.advance(2_000)
    (name, *_) = broker.disk.list(timer_runs.RUNS_DIR)
    file = broker.disk.open(f"{timer_runs.RUNS_DIR}/{name}")
    file.write(3, b"\x7f")
    file.close()
    with caplog.at_level(logging.WARNING):
        after = broker.killed()
    assert "are rebuilt" in caplog.text
    after.advance(10_000)
    assert after.bodies() == [b"%02d" % number for number in range(30)]
    after.stop()


@pytest.mark.usefixtures("small_runs")
def test_memory_and_files_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_runs, "MERGED_BELOW", 40)
    broker = TimerStore(commit_log_file_size=1 << 20).start()
    for number in range(300):
        broker.put(b"%03d" % number, 60_000 + (number * 37) % 300)
        broker.advance(1)
    broker.advance(3_000)
    assert broker.delivery._progress is not None
    pending = broker.delivery._progress.pending
    assert len(pending) == 300
    assert pending.fresh_count < 9
    assert len(pending.runs) < 14
    assert set(broker.disk.list(timer_runs.RUNS_DIR)) == {
        f"{run.number:020d}" for run in pending.runs
    }
    broker.advance(61_000)
    due = sorted(range(300), key=lambda n: (60_000 + (n * 37) % 300 + n, n))
    assert broker.bodies() == [b"%03d" % number for number in due]
    broker.advance(3_000)
    assert len(pending) == 0
    after = broker.restart()
    assert after.disk.list(timer_runs.RUNS_DIR) == []
    after.stop()


def test_a_progress_of_another_log_or_setting_is_not_believed() -> None:
    broker = TimerStore(hours=72).start()
    broker.put(b"x", HOUR_MS)
    after = broker.restart(hours=48)
    assert after.delivery.pending_count == 1
    after.advance(HOUR_MS + 1)
    assert after.bodies() == [b"x"]
    after.stop()


def test_what_was_never_durable_is_not_remembered() -> None:
    """A save waits for the log: a power cut takes the message and its entry together."""
    worker = ManualWorker()
    broker = TimerStore(worker=worker, **ASYNC).start()
    broker.append(b"x", 5_000)
    broker.timers.run()
    assert broker.delivery._progress is not None
    broker.delivery._progress._wants_save = True
    broker.delivery._save_when_due()
    worker.run_next()
    broker.delivery._save_when_due()
    assert not broker.disk.exists(TIMER_PROGRESS_FILE)
    broker.store.flush()
    broker.delivery._save_when_due()
    worker.run_all()
    assert _saved(broker)["queueOffset"] == 1
    broker.stop()


# Recalls


def test_a_recalled_message_never_comes(broker: TimerStore) -> None:
    broker.put(b"x", 3_000)
    broker.put(b"y", 3_000)
    broker.advance(10)
    assert broker.recall(b"x").message_count == 1
    assert broker.delivery.pending_by_topic == {"T": 1}
    broker.advance(10_000)
    assert broker.bodies() == [b"y"]


def test_a_recall_twice_of_nothing_or_of_another_topic(broker: TimerStore) -> None:
    broker.put(b"x", 3_000)
    broker.advance(10)
    assert broker.recall(b"nobody").message_count == 0
    assert broker.recall(b"x", topic="U").message_count == 0
    assert broker.recall(b"x").message_count == 1
    assert broker.recall(b"x").message_count == 0
    broker.advance(10_000)
    assert broker.bodies() == []
    assert broker.bodies("U") == []


def test_a_recall_counts_although_it_was_not_read_yet() -> None:
    """Stored in the last moment, in the same turn in which the message would have come."""
    broker = TimerStore().start()
    broker.put(b"x", 1_000)
    broker.advance(990)
    due_ms = broker.clock.wall_ms() + 10
    assert broker.delivery.recall("T", "id-x", due_ms).message_count == 1
    broker.advance(1_000)
    assert broker.bodies() == []
    broker.store.flush()
    after = broker.killed()
    after.advance(1_000)
    assert after.bodies() == []
    assert after.delivery.pending_by_topic == {}
    after.stop()


def test_a_recall_of_a_message_that_cannot_be_read_yet() -> None:
    broker = TimerStore().start()
    assert broker.delivery._progress is not None
    intake = broker.delivery._progress.intake
    broker.append(b"x", 5_000)
    now_ms = broker.clock.wall_ms()
    # What `recall` stores when a look for the message finds nothing.
    assert intake._append_recall("T", "id-x", now_ms + 5_000, now_ms, None).ok
    broker.store.flush()
    broker.advance(10_000)
    assert broker.bodies() == []
    assert broker.delivery.pending_by_topic == {}
    broker.stop()


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("is_kill", [True, False])
def test_recalls_survive(is_kill: bool) -> None:
    broker = TimerStore().start()
    for number in range(40):
        broker.put(b"%02d" % number, 60_000)
        broker.advance(1)
    for number in range(0, 40, 2):
        broker.recall(b"%02d" % number)
        broker.advance(1)
    broker.advance(3_000)
    after = broker.killed() if is_kill else broker.restart()
    assert after.delivery.pending_by_topic == {"T": 20}
    after.advance(61_000)
    assert after.bodies() == [b"%02d" % number for number in range(1, 40, 2)]
    after.stop()


@pytest.mark.parametrize("settings", [{}, ASYNC], ids=["sync", "async"])
def test_a_kill_costs_only_what_came_after_the_last_save(settings: dict[str, Any]) -> None:
    broker = TimerStore(**settings).start()
    for number in range(20):
        broker.put(b"%02d" % number, 60_000)
    broker.advance(10)
    assert broker.delivery._progress is not None
    broker.delivery._progress.save_now({})
    saved = _saved(broker)
    assert saved["queueOffset"] == 20
    after = broker.killed()
    assert after.delivery._progress is not None
    # Not built anew: it went on from the file.
    assert after.delivery._progress._saved_position == saved["logPosition"]
    after.advance(61_000)
    assert len(after.bodies()) == 20
    after.stop()
