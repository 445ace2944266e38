"""Which offsets a group took, read back from the log; and the offsets that come next."""

from __future__ import annotations

import pytest

from broker_core.errors import CorruptRecord
from broker_core.store.writes.message import Message
from tests.store.small_store import new_disk, numbered, open_small, put_all, run_of


def test_ranges_of_a_group_over_several_files() -> None:
    disk = new_disk()
    store = open_small(disk)
    put_all(store, "T", [b"before"])
    assert (store.next_offset("T", 0), store.next_offset("U", 3)) == (1, 0)
    runs = [
        run_of(*numbered(100, 300)),
        run_of(*numbered(7), topic=b"U", queue_id=3),
        run_of(*numbered(50, 300)),
    ]
    result = store.append_group(runs, b"note")
    assert result.ok
    assert store.next_offset("T", 0) == 151
    put_all(store, "T", [b"after"])
    expected = {("T", 0): (1, 151), ("U", 3): (0, 7)}
    for _ in range(2):
        assert store.group_ranges(result.position, result.end_position) == expected
        store.close()
        store = open_small(disk)


def test_a_group_without_records_and_one_that_is_gone() -> None:
    store = open_small(new_disk())
    result = store.append_group([], b"note")
    assert store.group_ranges(result.position, result.end_position) == {}
    assert store.group_ranges(0, result.end_position + 1) == {}
    with pytest.raises(CorruptRecord):
        store.group_ranges(1, result.end_position)


def test_savers_are_called_before_files_are_removed() -> None:
    disk = new_disk()
    store = open_small(disk, file_reserved_hours=1, delete_files_per_round=100)
    told: list[int] = []
    store.before_clean(lambda: told.append(store.log_range[0]))
    put_all(store, "T", numbered(100, 500))
    assert store.clean(manual=True) == 0
    assert told == []
    disk.clock.advance(2 * 3_600_000)
    assert store.append(Message("T", b"x")).ok
    assert store.clean(manual=True) > 0
    assert told == [0]
