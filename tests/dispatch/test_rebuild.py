"""Rebuilding one queue, or the index, from the log."""

from __future__ import annotations

from array import array

import pytest

from broker_core.dispatch.rebuild import LogSlices, rebuild_index, rebuild_queue
from broker_core.errors import CorruptRecord, CorruptStore
from broker_core.storage.derived.consume_queue import ConsumeQueue
from broker_core.storage.derived.message_index import MessageIndex, key_hash
from broker_core.store.message_store import MessageStore
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import bodies, new_disk, numbered, open_small, put_all

DELAYS = memoryview(array("q", (0,)))
COUNT = 70


def stored(count: int = COUNT) -> tuple[MessageStore, SimulatedDisk]:
    """Messages of two topics over several log and queue files."""
    disk = new_disk()
    store = open_small(disk)
    for body in numbered(count, 300):
        put_all(store, "T", [body], keys="key")
        put_all(store, "U", [b"u" + body])
    return store, disk


def queue_of(store: MessageStore, topic: bytes = b"T") -> ConsumeQueue:
    queue = store._opened.queues.find(topic, 0)
    assert queue is not None
    return queue


def rebuilt(store: MessageStore) -> None:
    opened = store._opened
    rebuild_queue(opened.log, opened.queues, queue_of(store), store.log_range[1], DELAYS)


def test_slices_cover_the_log_once() -> None:
    store, _ = stored()
    log = store._opened.log
    scans = list(LogSlices(log, log.start, log.position, DELAYS))
    assert len(scans) > 1, "the log has several files"
    assert sum(scan.count for scan in scans) == 2 * COUNT
    assert list(LogSlices(log, log.position, log.position, DELAYS)) == []


def test_a_rebuilt_queue_has_the_same_entries() -> None:
    store, _ = stored()
    queue = queue_of(store)
    before, others = queue.read(0, COUNT), queue_of(store, b"U").read(0, COUNT)
    rebuilt(store)
    assert (queue.min_offset, queue.max_offset) == (0, COUNT)
    assert queue.read(0, COUNT) == before
    assert queue_of(store, b"U").read(0, COUNT) == others
    assert bodies(store, "T") == numbered(COUNT, 300)


def test_entries_below_the_minimum_stay_hidden() -> None:
    store, _ = stored()
    queue = queue_of(store)
    queue.min_offset = 12
    rebuilt(store)
    assert (queue.min_offset, queue.max_offset) == (12, COUNT)


def test_an_empty_queue_keeps_its_numbering() -> None:
    """All of its records were removed with the log."""
    store, _ = stored()
    opened = store._opened
    queue = opened.queues.queue((b"removed", 0))
    queue.min_offset = queue.max_offset = 1_000
    rebuild_queue(opened.log, opened.queues, queue, store.log_range[1], DELAYS)
    assert (queue.min_offset, queue.max_offset) == (1_000, 1_000)


def test_a_log_without_the_last_entries_is_damage() -> None:
    store, _ = stored()
    queue = queue_of(store)
    queue.max_offset = COUNT + 1
    with pytest.raises(CorruptStore, match="lacks entries"):
        rebuilt(store)


def test_a_damaged_log_removes_nothing() -> None:
    store, disk = stored()
    queue = queue_of(store)
    paths = [path for path in disk.files() if path.startswith("consumequeue/T/")]
    kept = {path: disk.content(path) for path in paths}
    segment = store._opened.log.segments.all[1]
    segment.view[200] ^= 1
    with pytest.raises(CorruptRecord) as caught:
        rebuilt(store)
    assert caught.value.path == f"commitlog/{segment.base:020d}"
    assert {path: disk.content(path) for path in paths} == kept
    assert queue.max_offset == COUNT


def positions(index: MessageIndex) -> list[int]:
    return sorted(index.query(b"T", b"key", 1_000, 0, 1 << 62))


def test_the_index_is_rebuilt_from_a_file_in_the_middle() -> None:
    store, _ = stored()
    opened = store._opened
    index = opened.index
    assert index is not None
    assert len(index.files) > 2
    before = positions(index)
    assert len(before) == COUNT
    start = index.files[1].first_position
    index.drop_from(start)
    assert len(positions(index)) < COUNT
    rebuild_index(opened.log, index, start, store.log_range[1], DELAYS, 1)
    assert positions(index) == before
    assert key_hash(b"T", b"key") >= 0


def test_keys_that_the_file_before_has_are_not_added_twice() -> None:
    """A full file may end between the keys of one record."""
    store, _ = stored(0)
    for number in range(40):
        put_all(store, "T", [b"x"], keys="key a b c d" if number % 2 else "key")
    opened = store._opened
    index = opened.index
    assert index is not None
    before = positions(index)
    for number in range(1, len(index.files)):
        start = index.files[number].first_position
        index.drop_from(start)
        rebuild_index(opened.log, index, start, store.log_range[1], DELAYS, 1)
        assert positions(index) == before
        # One entry per key, and none twice.
        used = sum(file.header.next_entry - 1 for file in index.files)
        assert used == 40 + 20 * 4
