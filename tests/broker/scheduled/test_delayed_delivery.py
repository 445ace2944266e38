"""Delayed messages are delivered when due, once and in order, under all faults."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator, Sized
from typing import Any

import pytest

from broker_core.broker import timed_service
from broker_core.broker.scheduled.delay_progress import DELAY_OFFSETS_FILE
from broker_core.broker.scheduled.delayed_delivery import DelayedDelivery
from broker_core.broker.scheduled.delayed_message import delayed
from broker_core.config import StoreConfig, delay_levels_ms
from broker_core.protocol_codes import FlushDiskType
from broker_core.runtime.clock import SystemClock
from broker_core.storage.files.file_system import DiskUsage
from broker_core.storage.files.json_table import JsonTable
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.broker.delay_store import DelayStore

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}
HOUR_MS = 3_600_000


@pytest.fixture(params=[{}, ASYNC], ids=["sync", "async"])
def broker(request: pytest.FixtureRequest) -> Iterator[DelayStore]:
    made = DelayStore(**request.param).start()
    yield made
    made.stop()


def test_a_message_comes_exactly_when_it_is_due(broker: DelayStore) -> None:
    broker.delay(b"x", 2)
    broker.advance(4_999)
    assert broker.bodies() == []
    broker.advance(1)
    assert broker.bodies() == [b"x"]
    assert broker.delivery.offsets == {2: 1}


def test_one_timer_per_level_and_no_polling(broker: DelayStore) -> None:
    broker.delay(b"x", 4)
    broker.advance(1)
    before = broker.timers.turns
    broker.advance(29_000)
    # Only the saving of every second.
    assert broker.timers.turns - before <= 30


def test_progress_is_saved_at_the_configured_interval() -> None:
    broker = DelayStore(save_interval_ms=10_000).start()
    broker.delay(b"x", 1)
    broker.advance(9_000)
    assert broker.bodies() == [b"x"]
    assert broker.table.load() is None
    broker.advance(2_000)
    saved = broker.table.load()
    assert saved is not None and saved["offsetTable"] == {"1": 1}
    broker.stop()


def test_asking_for_late_messages_while_a_level_appears(run_async: Callable[..., Any]) -> None:
    async def check() -> None:
        broker = DelayStore(**ASYNC).start()
        await broker.store.start()
        for level in (4, 3, 2):
            broker.delay(b"%d" % level, level)
        # Appended, not dispatched yet: the question itself dispatches it.
        broker.store.append(delayed(Message("T", b"first of its level"), 1, 4))
        assert not broker.delivery.is_late
        broker.clock.advance(1_000)
        assert broker.delivery.is_late
        broker.timers.run()
        assert not broker.delivery.is_late
        assert broker.bodies() == [b"first of its level"]
        broker.stop()

    run_async(check())


def test_levels_do_not_wait_for_each_other(broker: DelayStore) -> None:
    for level in (4, 3, 2, 1):
        broker.delay(b"%d" % level, level)
    broker.advance(5_000)
    assert broker.bodies() == [b"1", b"2"]
    broker.advance(25_000)
    assert broker.bodies() == [b"1", b"2", b"3", b"4"]


def test_the_copy_is_as_it_was_sent(broker: DelayStore) -> None:
    host = ("10.1.2.3", 4_567)
    broker.delay(
        b"body", 1, "T", queue_id=3, tags="A", keys="k1 k2",
        properties={"own": "1", "WAIT": "true"}, flag=7, sys_flag=1,
        born_timestamp=12, born_host=host, reconsume_times=4,
    )  # fmt: skip
    broker.advance(1_000)
    (copy,) = broker.records("T", 3)
    assert (copy.flag, copy.sys_flag, copy.born_timestamp, copy.born_host) == (7, 1, 12, host)
    assert copy.reconsume_times == 4
    assert copy.properties == {
        "TAGS": "A", "KEYS": "k1 k2", "own": "1", "WAIT": "true",
        "DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip
    unit = broker.store.units("T", 3, 0, 1)[0]
    assert unit[2] == 65  # the hash of its tag again, no longer a time
    assert [found.body for found in broker.store.query("T", "k2")] == [b"body"]
    assert broker.stats.stats()["topic_put"]["T"]["messages"] == 1


def test_many_due_at_once_keep_their_order_and_let_others_run(broker: DelayStore) -> None:
    count = 1_000
    for number in range(count):
        broker.store.append(delayed(Message("T", b"%d" % number), 1, 4))
    broker.store.flush()
    broker.advance(999)
    turns = broker.timers.turns
    broker.advance(1)
    assert broker.bodies() == [b"%d" % number for number in range(count)]
    assert broker.timers.turns - turns >= count // timed_service.SLICE_COUNT_MAX


def test_large_messages_make_small_slices() -> None:
    broker = DelayStore(commit_log_file_size=16 << 20).start()
    for _ in range(6):
        broker.delay(bytes(600_000), 1)
    broker.advance(999)
    turns = broker.timers.turns
    broker.advance(1)
    assert len(broker.bodies()) == 6
    assert broker.timers.turns - turns >= 6
    broker.stop()


def test_only_the_head_is_in_memory(broker: DelayStore) -> None:
    for number in range(500):
        broker.store.append(delayed(Message("T", b"%d" % number), 4, 4))
    broker.store.flush()
    assert broker.delivery.pending_count == 500
    (level,) = broker.delivery._levels.values()
    held = [getattr(level, name) for name in level.__slots__]
    assert not [value for value in held if isinstance(value, Sized)]


def test_messages_delayed_while_stopped_and_overdue_come_at_once() -> None:
    broker = DelayStore()
    broker.delay(b"x", 1)
    broker.clock.advance(HOUR_MS)
    broker.start()
    broker.timers.run()
    assert broker.bodies() == [b"x"]
    broker.stop()


# Failures


def _refuse(broker: DelayStore) -> Callable[[], None]:
    """Let the store take no puts; returns what ends that."""
    broker.disk.reported_usage = DiskUsage(95, 5)
    broker.store.clean()
    assert not broker.store.append(Message("T", b"refused")).ok

    def end() -> None:
        broker.disk.reported_usage = None
        broker.store.clean()

    return end


def test_a_full_disk_delays_and_loses_nothing(
    broker: DelayStore, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        broker.delay(b"%d" % number, 1)
    end = _refuse(broker)
    with caplog.at_level(logging.WARNING):
        broker.advance(60_000)
    assert broker.bodies() == []
    assert broker.delivery.offsets.get(1, 0) == 0
    # Later and later, and said once.
    assert len([line for line in caplog.records if "cannot be delivered" in line.message]) == 1
    end()
    broker.advance(timed_service.BACK_OFF_MAX_MS)
    assert broker.bodies() == [b"%d" % number for number in range(100)]
    broker.delay(b"next", 1)
    broker.advance(1_000)
    assert broker.bodies()[-1] == b"next"


def test_a_message_that_arrives_during_a_back_off_does_not_shorten_it(broker: DelayStore) -> None:
    broker.delay(b"x", 1)
    end = _refuse(broker)
    broker.advance(30_000)
    end()
    waits = broker.timers.next_due_ms
    broker.delay(b"y", 1)
    assert broker.timers.next_due_ms == waits
    broker.advance(timed_service.BACK_OFF_MAX_MS)
    assert broker.bodies() == [b"x", b"y"]


def test_a_record_without_a_destination_does_not_stop_others(
    broker: DelayStore, caplog: pytest.LogCaptureFixture
) -> None:
    broker.delay(b"a", 1)
    stray = {"DELAY": "1", "REAL_QID": "0"}
    broker.store.append(Message("SCHEDULE_TOPIC_XXXX", b"stray", 0, properties=stray))
    broker.store.append(
        Message("SCHEDULE_TOPIC_XXXX", b"odd", 0, properties={**stray, "REAL_TOPIC": "../x"})
    )
    broker.delay(b"b", 1)
    with caplog.at_level(logging.ERROR):
        broker.advance(1_000)
    assert broker.bodies() == [b"a", b"b"]
    assert caplog.text.count("the message cannot be delivered") == 2
    assert broker.delivery.delivered_count == 2
    assert "REAL_TOPIC" in caplog.text


def test_a_damaged_record_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    broker = DelayStore().start()
    results = [broker.delay(b"%d" % number, 1) for number in range(5)]
    broker.stop()
    broker.disk.flip("commitlog/" + "0" * 20, 8 * (results[2].position + 88))
    broker = broker.successor(broker.disk)
    with caplog.at_level(logging.ERROR):
        broker.advance(1_000)
    assert broker.bodies() == [b"0", b"1", b"3", b"4"]
    assert caplog.text.count("the message cannot be delivered") == 1
    assert "damage" in caplog.text


def test_a_text_without_room_for_the_checksum_is_delivered_shortened() -> None:
    broker = DelayStore(append_record_crc=False, commit_log_file_size=256 << 10).start()
    origin = delayed(Message("T", b"x"), 1, 4).properties
    used = sum(len(name) + len(value) + 2 for name, value in origin.items())
    broker.delay(b"x", 1, properties={"p": "v" * (32_767 - used - 3)})
    broker = broker.killed(append_record_crc=True)
    broker.advance(1_000)
    (copy,) = broker.records()
    assert set(copy.properties) == {"p"}
    broker.stop()


def test_a_table_that_cannot_be_written_is_tried_again(
    broker: DelayStore, caplog: pytest.LogCaptureFixture
) -> None:
    broker.advance(3_000)
    broker.delay(b"x", 1)
    broker.advance(1_000)
    assert broker.bodies() == [b"x"]
    broker.store.flush()
    number = broker.disk.operation_count + 1
    broker.disk.fail(number, errno.ENOSPC, sticky=True, methods={"create"})
    with caplog.at_level(logging.WARNING):
        broker.advance(3_000)
    assert "cannot be written, trying again" in caplog.text
    broker.disk._faults.clear()
    broker.advance(20_000)
    stored = broker.table.load()
    assert stored is not None
    assert stored["offsetTable"] == {"1": 1}


# Clocks and configuration


def test_the_wall_clock_is_set_forward(broker: DelayStore) -> None:
    broker.delay(b"x", 4)
    broker.advance(10)
    broker.clock.set_wall(broker.clock.wall_ms() + HOUR_MS)
    broker.advance(1_000)
    assert broker.bodies() == [b"x"]


def test_the_wall_clock_is_set_back(broker: DelayStore) -> None:
    """Everything delayed before that would wait for an hour: it is due now."""
    for level in (1, 2, 3, 4):
        broker.delay(b"%d" % level, level)
    broker.advance(10)
    broker.clock.set_wall(broker.clock.wall_ms() - HOUR_MS)
    broker.advance(1_000)
    assert sorted(broker.bodies()) == [b"1", b"2", b"3", b"4"]


def test_messages_still_wait_while_the_wall_clock_is_behind(broker: DelayStore) -> None:
    """The store's time stands still then; retries must not follow each other without a pause."""
    broker.store.put_now(Message("other", b""))
    broker.clock.set_wall(broker.clock.wall_ms() - HOUR_MS)
    broker.delay(b"a", 2)
    broker.advance(4_999)
    assert broker.bodies() == []
    broker.delay(b"b", 2)
    broker.advance(1)
    assert broker.bodies() == [b"a"]
    broker.advance(4_999)
    assert broker.bodies() == [b"a"]
    broker.advance(2)
    assert broker.bodies() == [b"a", b"b"]
    broker.advance(HOUR_MS)
    broker.delay(b"c", 2)
    broker.advance(4_999)
    assert broker.bodies() == [b"a", b"b"]
    broker.advance(1)
    assert broker.bodies() == [b"a", b"b", b"c"]


def test_a_slow_wall_clock_shifts_the_timer(broker: DelayStore) -> None:
    broker.delay(b"x", 4)
    for _ in range(25):
        broker.advance(1_000)
        broker.clock.set_wall(broker.clock.wall_ms() - 20)
    broker.advance(5_000)
    assert broker.bodies() == []
    passed = broker.advance_until(lambda: bool(broker.bodies()))
    assert abs(passed - 500) <= 50


def test_a_level_becomes_longer_or_shorter() -> None:
    broker = DelayStore().start()
    broker.delay(b"3", 3)
    broker.delay(b"4", 4)
    broker = broker.restart(levels="1s 5s 20s 2s")
    broker.advance(1)
    # 30 seconds are more than the level has now.
    assert broker.bodies() == [b"4"]
    broker.advance(9_998)
    assert broker.bodies() == [b"4"]
    broker.advance(1)
    assert broker.bodies() == [b"4", b"3"]
    broker.stop()


def test_messages_of_a_level_that_is_gone_are_delivered() -> None:
    broker = DelayStore().start()
    broker.delay(b"x", 4)
    broker = broker.restart(levels="1s")
    broker.advance(29_999)
    assert broker.bodies() == []
    broker.advance(1)
    assert broker.bodies() == [b"x"]
    broker.stop()


def test_a_new_level_is_served(broker: DelayStore) -> None:
    long = broker.restart(levels="1s 5s 10s 30s 1m")
    long.delay(b"x", 5)
    long.advance(60_000)
    assert long.bodies() == [b"x"]
    long.stop()


# On a real event loop


def test_punctual_on_an_event_loop(tmp_path: Any, run_async: Callable[..., Any]) -> None:
    """On a real loop and disk. Trap 59: Apache is up to 0.8 s late at level 1.

    That we are within a turn of the loop is shown above, with a clock that stands still.
    """

    async def check() -> None:
        config = StoreConfig(commit_log_file_size=1 << 20, message_delay_level="1s", **ASYNC)
        store = MessageStore.open(tmp_path, config)
        await store.start()
        files = PosixFileSystem(tmp_path)
        delivery = DelayedDelivery(
            store=store,
            table=JsonTable(files, DELAY_OFFSETS_FILE),
            clock=SystemClock(),
            levels=delay_levels_ms("1s"),
        )
        delivery.start()
        arrived: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def note(topic: bytes, _: int, __: int) -> None:
            if topic == b"T" and not arrived.done():
                arrived.set_result(SystemClock().wall_ms())

        store.on_arrival(note)
        result = store.append(delayed(Message("T", b"x"), 1, 1))
        came_ms = await arrived
        delivery.stop()
        store.close()
        files.close()
        assert came_ms >= result.store_timestamp + 1_000

    run_async(check())


def test_stop_before_start_and_twice(broker: DelayStore) -> None:
    other = DelayStore()
    other.delivery.stop()
    other.start()
    other.stop()
    other.delivery.stop()
    assert other.delivery.offsets == {}


def test_nothing_is_delivered_after_stop() -> None:
    broker = DelayStore().start()
    broker.delay(b"x", 1)
    broker.advance(999)
    broker.delivery.stop()
    broker.delay(b"y", 1)
    broker.advance(HOUR_MS)
    assert broker.bodies() == []
    assert broker.timers.next_due_ms is None
    broker.store.close()
