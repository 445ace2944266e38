"""Queue entries as they are, and the walk for records that name an earlier one."""

from __future__ import annotations

import pytest

from broker_core.codec.native import java_hash
from broker_core.errors import CorruptRecord, InvalidArgument
from broker_core.store.writes.message import Message
from tests.store.small_store import new_disk, numbered, open_small, put_all, run_of


def test_units() -> None:
    disk = new_disk()
    store = open_small(disk)
    results = [store.append(Message("T", b"x", tags="A")) for _ in range(50)]
    expected = [(r.position, r.end_position - r.position, java_hash(b"A")) for r in results]
    assert store.units("T", 0, 0, 50) == expected
    assert store.units("T", 0, 10, 3) == expected[10:13]
    assert store.units("T", 0, 48, 100) == expected[48:]
    assert store.units("T", 0, 50, 1) == []
    assert store.units("T", 0, 99, 1) == []
    assert store.units("T", 1, 0, 1) == []
    assert store.units("none", 0, 0, 1) == []
    with pytest.raises(InvalidArgument):
        store.units("T", 0, -1, 1)
    store.close()


def test_units_of_delayed_messages_are_due_times() -> None:
    store = open_small(new_disk(), message_delay_level="1s 5s")
    result = store.put_now(
        Message("SCHEDULE_TOPIC_XXXX", b"x", 1, tags="A", properties={"DELAY": "2"})
    )
    assert store.units("SCHEDULE_TOPIC_XXXX", 1, 0, 1)[0][2] == result.store_timestamp + 5_000
    store.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("born", ["10.0.0.1", "fe80::2"])
def test_prepared_offsets(host: str, born: str) -> None:
    disk = new_disk()
    store = open_small(disk, store_host=host)
    expected = []
    for number, prepared in enumerate((0, -1, 5, 0, -(1 << 63), (1 << 63) - 1)):
        message = Message(
            f"T{number % 3}", bytes(3_000), prepared_transaction_offset=prepared,
            born_host=(born, 1),
        )  # fmt: skip
        result = store.put_now(message)
        if prepared:
            expected.append((result.position, prepared))
    assert sorted(store.prepared_offsets(0)) == expected
    assert sorted(store.prepared_offsets(expected[1][0])) == expected[1:]
    assert list(store.prepared_offsets(store.log_range[1])) == []
    store.close()


def test_prepared_offsets_walk_over_groups_and_file_ends() -> None:
    store = open_small(new_disk())
    put_all(store, "T", numbered(30, 900))
    store.append_group([run_of(*numbered(40, 500)), run_of(*numbered(5, 10), topic=b"U")], b"note")
    store.flush()
    last = store.put_now(Message("T", b"", prepared_transaction_offset=-7))
    put_all(store, "T", numbered(30, 900))
    assert list(store.prepared_offsets(0)) == [(last.position, -7)]
    store.close()


def test_prepared_offsets_start_with_what_retention_left() -> None:
    disk = new_disk()
    store = open_small(disk, file_reserved_hours=1)
    put_all(store, "T", numbered(60, 900), prepared_transaction_offset=3)
    disk.clock.advance(2 * 3_600_000)
    start = store.clean(manual=True)
    assert start > 0
    found = [position for position, _ in store.prepared_offsets(0)]
    assert found
    assert min(found) == start
    store.close()


def test_prepared_offsets_report_damage() -> None:
    disk = new_disk()
    store = open_small(disk)
    results = [store.put_now(Message("T", b"%d" % n)) for n in range(5)]
    store.close()
    disk.flip("commitlog/" + "0" * 20, 8 * (results[2].position + 80))
    store = open_small(disk)
    with pytest.raises(CorruptRecord):
        list(store.prepared_offsets(0))
