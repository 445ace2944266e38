"""Timer messages under clock changes, lost files, disk errors and other brokers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.broker.scheduled import timer_progress, timer_runs
from broker_core.codec.wire.topic_name import TIMER_TOPIC
from broker_core.protocol_codes import FlushDiskType
from broker_core.storage.files.file_system import DiskUsage
from broker_core.store.writes.message import Message
from tests.broker.timer_store import TimerStore

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture(params=[{}, ASYNC], ids=["sync", "async"])
def broker(request: pytest.FixtureRequest) -> Iterator[TimerStore]:
    made = TimerStore(**request.param).start()
    yield made
    made.stop()


# Clocks


def test_a_clock_set_forward_brings_what_is_due(broker: TimerStore) -> None:
    broker.put(b"x", HOUR_MS)
    broker.put(b"y", 2 * HOUR_MS)
    broker.advance(10)
    broker.clock.set_wall(broker.clock.wall_ms() + HOUR_MS)
    broker.advance(1_000)
    assert broker.bodies() == [b"x"]


def test_a_clock_set_back_neither_repeats_nor_hurries(broker: TimerStore) -> None:
    broker.put(b"x", 1_000)
    broker.put(b"y", 10_000)
    broker.advance(1_100)
    assert broker.bodies() == [b"x"]
    broker.clock.set_wall(broker.clock.wall_ms() - HOUR_MS)
    broker.advance(2_000)
    broker.put(b"z", 5_000)
    broker.advance(5_100)
    assert broker.bodies() == [b"x", b"z"]
    broker.advance(HOUR_MS + 10_000)
    assert broker.bodies() == [b"x", b"z", b"y"]


def test_messages_behind_a_clock_that_was_set_forward_and_back() -> None:
    broker = TimerStore().start()
    broker.put(b"x", HOUR_MS)
    broker.clock.set_wall(broker.clock.wall_ms() + DAY_MS)
    broker.advance(1_000)
    assert broker.bodies() == [b"x"]
    broker.clock.set_wall(broker.clock.wall_ms() - DAY_MS)
    broker.put(b"y", 2_000)
    after = broker.killed()
    after.advance(2_100)
    assert after.bodies() == [b"x", b"y"]
    after.stop()


# Retention


def test_a_message_far_ahead_is_rolled_before_its_file_expires() -> None:
    broker = TimerStore(hours=4).start()
    broker.put(b"far", 9 * HOUR_MS - 1)
    for hour in range(1, 10):
        for _ in range(40):
            broker.store.append(Message("other", bytes(3_000)))
        broker.store.flush()
        broker.advance(HOUR_MS - 60_000)
        broker.store.clean(manual=True)
        broker.advance(60_000)
        assert broker.bodies() == ([] if hour < 9 else [b"far"])
        if hour == 5:
            broker = broker.killed()
    assert broker.store.log_range[0] > 0
    (copy,) = broker.records()
    assert copy.properties["TIMER_ROLL_TIMES"] == "4"
    assert broker.delivery.pending_by_topic == {}
    broker.stop()


def test_a_rolled_message_can_be_recalled() -> None:
    broker = TimerStore(hours=4).start()
    broker.put(b"far", 9 * HOUR_MS)
    broker.advance(5 * HOUR_MS)
    # The message, and two copies of it that replaced each other.
    assert broker.store.offsets(TIMER_TOPIC, 0)[1] == 3
    assert broker.recall(b"far").message_count == 1
    broker.advance(9 * HOUR_MS)
    assert broker.bodies() == []
    broker.stop()


def test_messages_that_went_with_their_files_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = TimerStore(hours=72).start()
    broker.put(b"x", HOUR_MS)
    broker.advance(10)
    for _ in range(100):
        broker.store.append(Message("other", bytes(3_000)))
    broker.store.flush()
    broker.disk.reported_usage = DiskUsage(90, 10)
    broker.store.clean(manual=True)
    broker.disk.reported_usage = None
    broker.store.clean(manual=True)
    assert broker.store.offsets(TIMER_TOPIC, 0) == (1, 1)
    with caplog.at_level(logging.ERROR):
        broker.advance(HOUR_MS + 2_000)
    assert "retention has removed 1 timer messages before they were due" in caplog.text
    assert broker.delivery.pending_by_topic == {}
    broker.stop()


def test_deliveries_are_known_when_the_files_that_tell_of_them_go() -> None:
    broker = TimerStore(hours=1).start()
    broker.put(b"x", 100)
    broker.put(b"far", 20 * 60_000)
    broker.advance(200)
    for _ in range(100):
        broker.store.append(Message("other", bytes(3_000)))
    broker.store.flush()
    broker.clock.advance(1)
    broker.disk.reported_usage = DiskUsage(90, 10)
    broker.store.clean(manual=True)
    after = broker.killed()
    assert after.delivery.pending_by_topic == {"T": 1}
    after.stop()


# Failures


def test_a_store_that_takes_nothing_is_tried_again(broker: TimerStore) -> None:
    broker.put(b"x", 1_000)
    broker.put(b"y", 1_100)
    broker.disk.reported_usage = DiskUsage(95, 5)
    broker.store.clean()
    broker.advance(3_000)
    assert broker.bodies() == []
    assert broker.delivery.late_ms > 1_000
    broker.disk.reported_usage = None
    broker.store.clean()
    broker.advance(10_000)
    assert broker.bodies() == [b"x", b"y"]


def test_a_disk_that_cannot_write_runs_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(timer_progress, "FRESH_MAX", 4)
    broker = TimerStore().start()
    create = broker.disk.create

    def refuse(path: str) -> Any:
        if path.startswith(timer_runs.RUNS_DIR):
            raise OSError(28, "no space")
        return create(path)

    broker.disk.create = refuse  # type: ignore[method-assign]
    for number in range(10):
        broker.put(b"%d" % number, 3_000)
    broker.advance(1_500)
    assert "not saved, trying again" in caplog.text
    broker.disk.create = create  # type: ignore[method-assign]
    broker.advance(1_000)
    assert broker.disk.list(timer_runs.RUNS_DIR)
    broker.advance(3_000)
    assert broker.bodies() == [b"%d" % number for number in range(10)]
    broker.stop()


def test_records_that_cannot_be_delivered_do_not_delay_others(
    broker: TimerStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = broker.store
    for text in (b"", b"TIMER_OUT_MS\x01abc\x02", b"TIMER_OUT_MS\x01123\x02REAL_TOPIC\x01a b\x02"):
        store.append_text(TIMER_TOPIC, 0, b"bad", text, born_host=store.store_host)
    loops = b"TIMER_OUT_MS\x01123\x02REAL_TOPIC\x01rmq_sys_wheel_timer\x02"
    store.append_text(TIMER_TOPIC, 0, b"bad", loops, born_host=store.store_host)
    broker.put(b"x", 100)
    broker.advance(200)
    assert broker.bodies() == [b"x"]
    assert caplog.text.count("can never be delivered and is skipped") == 4


def test_what_apache_has_delivered_is_not_repeated() -> None:
    """Its records are rounded to seconds, and its own note says how far it was."""
    broker = TimerStore()
    now_ms = broker.clock.wall_ms() // 1000 * 1000
    store = broker.store
    for number, due_s in enumerate((-9, -5, 5, 8)):
        out = now_ms + due_s * 1000
        text = b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02" % out
        store.append_text(TIMER_TOPIC, 0, b"%d" % number, text, born_host=store.store_host)
    store.flush()
    page = b"".join(n.to_bytes(8, "big") for n in (now_ms - 6_000, 52 * 4, 4, 4, 0, 0, 0))
    broker.disk.make_dir("config")
    file = broker.disk.create("config/timercheck")
    file.write(0, page)
    file.close()
    broker.start()
    assert broker.bodies() == [b"1"]
    broker.advance(5_900)
    assert broker.bodies() == [b"1"]
    broker.advance(1_100)
    assert broker.bodies() == [b"1", b"2"]
    broker.advance(5_000)
    assert broker.bodies() == [b"1", b"2", b"3"]
    broker.stop()
