"""Where delivery resumes after a restart: by the file, the log, or Apache's file."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from broker_core.broker.scheduled import delay_progress
from broker_core.broker.scheduled.delay_progress import DELAY_OFFSETS_FILE
from broker_core.errors import CorruptStore, StoreUnusable
from broker_core.protocol_codes import FlushDiskType
from broker_core.storage.files.atomic_file import read_file
from broker_core.store.writes.message import Message
from tests.broker.delay_store import DelayStore

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}


def _three_of_five() -> DelayStore:
    """Five delayed, three delivered, nothing saved since the start."""
    broker = DelayStore().start()
    broker.advance(1_500)
    for number in range(3):
        broker.delay(b"%d" % number, 1)
    broker.advance(100)
    for number in range(3, 5):
        broker.delay(b"%d" % number, 1)
    # Saved at 2 seconds, delivered at 2.5.
    broker.advance(900)
    assert broker.bodies() == [b"0", b"1", b"2"]
    return broker


def _table(broker: DelayStore) -> dict[str, Any]:
    stored = broker.table.load()
    assert stored is not None
    return stored


def test_saved_soon_in_the_shape_of_rocketmq() -> None:
    broker = DelayStore().start()
    for level in (1, 1, 3):
        broker.delay(b"x", level)
    broker.advance(12_000)
    stored = _table(broker)
    assert stored["offsetTable"] == {"1": 2, "3": 1}
    assert set(stored["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
    assert stored["logPosition"] == broker.store.log_range[1]
    assert stored["storeId"] == broker.store.store_id
    broker.stop()


def test_not_saved_again_when_nothing_changed() -> None:
    broker = DelayStore().start()
    broker.delay(b"x", 1)
    broker.advance(5_000)
    version = _table(broker)["dataVersion"]
    broker.advance(600_000)
    assert _table(broker)["dataVersion"] == version
    broker.stop()


def test_other_traffic_moves_the_position_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_progress, "GROWTH_MAX", 10_000)
    broker = DelayStore().start()
    broker.advance(2_000)
    before = _table(broker)["logPosition"]
    broker.store.put_now(Message("other", bytes(9_000)))
    broker.advance(2_000)
    assert _table(broker)["logPosition"] == before
    broker.store.put_now(Message("other", bytes(9_000)))
    broker.advance(2_000)
    assert _table(broker)["logPosition"] == broker.store.log_range[1]
    broker.stop()


def test_nothing_is_saved_that_a_power_cut_could_take() -> None:
    broker = DelayStore(**ASYNC).start()
    broker.delay(b"x", 1)
    broker.advance(1_000)
    assert broker.bodies() == [b"x"]
    assert broker.store.flushed_position < broker.store.log_range[1]
    broker.advance(5_000)
    assert (broker.table.load() or {}).get("offsetTable", {}) == {}
    broker.store.flush()
    broker.advance(1_000)
    assert _table(broker)["offsetTable"] == {"1": 1}
    broker.stop()


def test_a_killed_broker_does_not_deliver_again() -> None:
    broker = _three_of_five()
    assert _table(broker)["offsetTable"] == {}
    after = broker.killed()
    assert after.delivery.offsets == {1: 3}
    after.advance(1_000)
    assert after.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    after.stop()


def test_a_clean_restart_reads_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = _three_of_five()
    broker.stop()
    walked: list[int] = []
    next_broker = DelayStore(broker.disk)
    walk = next_broker.store.prepared_offsets
    monkeypatch.setattr(
        next_broker.store, "prepared_offsets", lambda start: walked.append(start) or walk(start)
    )
    next_broker.start()
    assert walked == [next_broker.store.log_range[1]]
    next_broker.advance(1_000)
    assert next_broker.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    next_broker.stop()


def test_without_a_file_the_log_tells() -> None:
    broker = _three_of_five()
    disk = broker.disk.kill()
    for path in (DELAY_OFFSETS_FILE, f"{DELAY_OFFSETS_FILE}.bak"):
        if disk.exists(path):
            disk.delete(path)
    after = broker.successor(disk)
    assert after.delivery.offsets == {1: 3}
    after.advance(1_000)
    assert after.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    assert _table(after)["logPosition"] > 0
    after.stop()


def _replaced_table(broker: DelayStore, text: bytes) -> DelayStore:
    broker.stop()
    disk = broker.disk
    for path in (DELAY_OFFSETS_FILE, f"{DELAY_OFFSETS_FILE}.bak"):
        if disk.exists(path):
            disk.delete(path)
    file = disk.create(DELAY_OFFSETS_FILE)
    file.write(0, text)
    file.sync()
    file.close()
    disk.sync_dir("config")
    return DelayStore(disk)


@pytest.mark.parametrize(
    "text",
    [
        b'{"offsetTable":{1:1}}',
        b'{\n\t"dataVersion":{"counter":3,"stateVersion":0,"timestamp":17},\n\t'
        b'"offsetTable":{1:1,2:0\n\t}\n}',
    ],
    ids=["4.9", "5.x"],
)
def test_apache_has_had_the_directory(text: bytes) -> None:
    """Its file has no position, and may be older than what we had delivered before."""
    broker = _replaced_table(_three_of_five(), text).start()
    assert broker.delivery.offsets[1] == 3
    broker.advance(1_000)
    assert broker.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    assert _table(broker)["dataVersion"]["counter"] >= 1
    broker.stop()


def test_apache_has_delivered_more() -> None:
    broker = _replaced_table(_three_of_five(), b'{"offsetTable":{1:4}}').start()
    broker.advance(1_000)
    assert broker.bodies() == [b"0", b"1", b"2", b"4"]
    broker.stop()


def test_apache_reads_our_file() -> None:
    """Quoted keys and unknown fields are fine for it; the table must be where it looks."""
    broker = _three_of_five()
    broker.stop()
    data = read_file(broker.disk, DELAY_OFFSETS_FILE)
    assert data is not None
    assert b'"offsetTable":{"1":3}' in data


def test_offsets_behind_the_end_of_a_queue_are_its_end() -> None:
    """Another broker saves its progress before the log is durable."""
    broker = _replaced_table(_three_of_five(), b'{"offsetTable":{1:900,4:70}}').start()
    assert broker.delivery.offsets == {1: 5, 4: 0}
    for number in range(10):
        broker.delay(b"late %d" % number, 4)
        broker.delay(b"soon %d" % number, 1)
    broker.advance(30_000)
    found = [body for body in broker.bodies() if b" " in body]
    assert sorted(found) == sorted(
        [b"soon %d" % n for n in range(10)] + [b"late %d" % n for n in range(10)]
    )
    broker.stop()


def test_a_position_of_another_log_does_not_count() -> None:
    text = b'{"offsetTable":{"1":1},"logPosition":5,"storeId":"other"}'
    broker = _replaced_table(_three_of_five(), text).start()
    assert broker.delivery.offsets == {1: 3}
    broker.stop()


def test_a_position_above_the_log_does_not_count() -> None:
    broker = _three_of_five()
    text = f'{{"offsetTable":{{"1":1}},"logPosition":999999,"storeId":"{broker.store.store_id}"}}'
    broker = _replaced_table(broker, text.encode()).start()
    assert broker.delivery.offsets == {1: 3}
    broker.stop()


@pytest.mark.parametrize(
    "text",
    [b'{"offsetTable":{"x":1}}', b'{"offsetTable":{"1":-1}}', b'{"offsetTable":{"0":1}}',
     b'{"offsetTable":[]}', b'{"offsetTable":{"1":"2"}}', b'{"offsetTable":{},"logPosition":"a"}'],
)  # fmt: skip
def test_impossible_files_are_refused_by_name(text: bytes) -> None:
    broker = _replaced_table(_three_of_five(), text)
    with pytest.raises(StoreUnusable, match=r"delayOffset\.json"):
        broker.start()
    broker.store.close()


def test_unreadable_files_are_refused() -> None:
    broker = _replaced_table(_three_of_five(), b"{")
    with pytest.raises(CorruptStore, match=r"delayOffset\.json"):
        broker.start()
    broker.store.close()


def test_retention_that_removes_what_is_pending_is_said(caplog: pytest.LogCaptureFixture) -> None:
    broker = DelayStore(commit_log_file_size=4 << 10, file_reserved_hours=1).start()
    broker.delay(b"gone", 4)
    for _ in range(10):
        broker.store.put_now(Message("other", bytes(1_000)))
    broker.delivery.stop()
    broker.clock.advance(2 * 3_600_000)
    broker.store.clean(manual=True)
    broker.store.close()
    with caplog.at_level(logging.WARNING):
        after = broker.successor(broker.disk)
        after.advance(1)
    assert "retention has removed 1 messages" in caplog.text
    after.delay(b"x", 4)
    after.advance(30_000)
    assert after.bodies() == [b"x"]
    after.stop()


def test_transactions_and_other_records_are_not_taken_for_copies() -> None:
    broker = DelayStore().start()
    first = broker.delay(b"a", 1)
    second = broker.delay(b"b", 1)
    other = broker.store.put_now(Message("other", b""))
    for prepared in (
        second.position, ~other.position, ~(other.end_position + 500), -(1 << 62), ~first.position,
    ):  # fmt: skip
        # Nothing but the last one is the copy of a waiting record.
        broker.store.append(Message("T", b"%d" % prepared, prepared_transaction_offset=prepared))
    after = broker.killed()
    assert after.delivery.offsets == {1: 1}
    after.advance(1_000)
    assert after.bodies()[-1] == b"b"
    assert after.bodies().count(b"a") == 0
    after.stop()
