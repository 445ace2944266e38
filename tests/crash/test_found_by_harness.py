"""Bugs that the harness found in the store, each as the shortest scenario that shows it."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from broker_core.codec.records import column_names
from broker_core.errors import CorruptStore, DiskFailed, StoreFenced, StoreUnusable
from broker_core.protocol_codes import PutStatus
from broker_core.storage.staging.staging_area import encode_template
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.crash.history import Sent
from tests.crash.store_run import column_batch
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk
from tests.regress.small_disk_store import (
    ASYNC,
    TOPIC,
    new_disk,
    numbered,
    numbers_in,
    open_store,
    reboots,
    small_config,
)

RETENTION = {"file_reserved_hours": 1}


def _advance(disk: SimulatedDisk, ms: int) -> None:
    assert isinstance(disk.clock, ManualClock)
    disk.clock.advance(ms)


def _filled(disk: SimulatedDisk, count: int, **changes: Any) -> MessageStore:
    store = open_store(disk, small_config(**changes))
    for number in range(count):
        assert store.append(numbered(number)).ok
    return store


def test_a_cut_while_the_first_file_is_made() -> None:
    disk = new_disk()
    store = open_store(disk, small_config())
    for after in _cuts_during(disk, lambda: store.append(numbered(0))):
        open_store(after, small_config())


def _cuts_during(disk: SimulatedDisk, work: Any, limit: int = 16) -> list[SimulatedDisk]:
    """The disks of a cut before each operation of `work`, and of a kill there."""
    found: list[SimulatedDisk] = []

    def before(_: int) -> None:
        found.extend(reboots(disk, limit))
        found.append(disk.copy())

    disk.on_operation = before
    work()
    disk.on_operation = None
    return found


def test_a_queue_keeps_its_numbering_after_retention() -> None:
    disk = new_disk()
    store = open_store(disk, small_config(**RETENTION))
    for number in range(3):
        assert store.append(Message("rare", b"%d" % number)).ok
    for number in range(20):
        assert store.append(numbered(number)).ok
    _advance(disk, 2 * 3_600_000)
    for after in _cuts_during(disk, lambda: store.clean(manual=True)):
        assert open_store(after, small_config(**RETENTION)).offsets("rare", 0)[1] == 3


def test_retention_that_was_killed_and_then_lost_power() -> None:
    disk = new_disk()
    store = _filled(disk, 20, **RETENTION)
    _advance(disk, 2 * 3_600_000)
    killed: list[SimulatedDisk] = []

    def state_is_written_but_not_synced(_: int) -> None:
        if disk.content("store_state") != disk.durable_content("store_state"):
            killed.append(disk.copy())

    disk.on_operation = state_is_written_but_not_synced
    store.clean(manual=True)
    assert len(killed) > 1
    for dead in killed:
        for after in _cuts_during(dead, lambda d=dead: open_store(d, small_config()), limit=4):
            recovered = open_store(after, small_config())
            assert numbers_in(recovered, recovered.offsets(TOPIC, 0)[0])[-1] == 19


def test_a_cut_tail_of_several_files_leaves_no_gap() -> None:
    disk = new_disk()
    store = open_store(disk, small_config(**ASYNC))
    messages = [Sent((TOPIC, 0), b"%d:" % n + bytes(300)) for n in range(20)]
    assert store.append_group([encode_template(column_batch(messages, crc=True))]).ok
    assert len(disk.list("commitlog")) > 3
    (nothing, *_) = reboots(disk, 2)
    for after in _cuts_during(nothing, lambda: open_store(nothing, small_config()), limit=16):
        assert numbers_in(open_store(after, small_config())) == []


def test_a_deleted_topic_stays_deleted_when_its_queue_is_rebuilt() -> None:
    disk = new_disk()
    store = _filled(disk, 4)
    store.delete_topic(TOPIC)
    assert store.append(numbered(4)).ok
    store.close()
    for name in disk.list(f"consumequeue/{TOPIC}/0"):
        disk.delete(f"consumequeue/{TOPIC}/0/{name}")
    store = open_store(disk, small_config())
    assert store.offsets(TOPIC, 0) == (4, 5)
    assert numbers_in(store, 4) == [4]


@pytest.mark.parametrize("seed", range(4))
def test_readers_learn_of_a_sync_that_failed_with_the_note_of_it(seed: int) -> None:
    disk = new_disk(seed=seed)
    store = open_store(disk, small_config(**ASYNC))
    for number in range(5):
        assert store.append(numbered(number)).ok
    seen, epoch = numbers_in(store), store.epoch
    syncs = [op.number for op in disk.operations() if op.method == "sync"]
    disk.fail(syncs[-1] + 1, errno.EIO, sticky=True, methods={"sync"})
    # The note itself fails too, after the one that says that a sync was begun.
    disk.fail(disk.operation_count + 2, errno.EROFS, sticky=True, methods={"write"})
    with pytest.raises(StoreFenced):
        store.flush()
    after = open_store(disk.kill(), small_config(**ASYNC))
    assert numbers_in(after) == seen or after.epoch != epoch


def test_a_kill_alone_keeps_the_epoch() -> None:
    disk = new_disk()
    store = _filled(disk, 5, **ASYNC)
    store.flush()
    assert store.append(numbered(5)).ok
    after = open_store(disk.kill(), small_config(**ASYNC))
    assert (numbers_in(after), after.epoch) == (list(range(6)), store.epoch)


def test_a_file_that_cannot_be_mapped_refuses_the_whole_batch() -> None:
    disk = new_disk()
    store = _filled(disk, 5)
    before = store.log_range
    messages = [Sent((TOPIC, 0), b"%d:" % n + bytes(100)) for n in range(40)]
    disk.fail(disk.operation_count + 1, errno.ENOMEM, sticky=True, methods={"buffer"})
    result = store.append_batch(column_batch(messages, crc=True))
    assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert store.log_range == before
    disk._faults.clear()
    assert store.append_batch(column_batch(messages, crc=True)).ok


def test_a_listener_that_fails_does_not_make_the_index_count_twice() -> None:
    disk = new_disk()
    store = open_store(disk, small_config())

    def fails(*_: object) -> None:
        raise ValueError("a bad listener")

    store.on_arrival(fails)
    with pytest.raises(ValueError, match="bad listener"):
        store.append(numbered(0))
    store._opened.dispatcher._listeners.clear()
    store.flush()
    assert len(store.query(TOPIC, "key0")) == 1
    assert store._opened.index is not None
    assert store._opened.index.files[0].header.next_entry == 2


def test_a_disk_that_fails_has_a_name_of_its_own() -> None:
    disk = new_disk(trace_reads=True)
    disk.fail(1, errno.EIO)
    with pytest.raises(StoreUnusable, match="Input/output error"):
        open_store(disk, small_config())
    store = _filled(disk, 12)
    store.close()
    store = open_store(disk, small_config())
    disk.fail(disk.operation_count + 1, errno.EIO, sticky=True)
    wanted = column_names.VALUE
    for call in (
        lambda: store.get(TOPIC, 0, 0),
        lambda: store.read_columns(TOPIC, 0, 0, 3, wanted),
        lambda: store.query(TOPIC, "key1"),
        lambda: store.delete_topic(TOPIC),
    ):
        with pytest.raises((DiskFailed, StoreFenced), match="Input/output error"):
            call()


def test_a_prepared_file_that_could_not_be_removed_is_no_gap() -> None:
    disk = new_disk()
    store = _filled(disk, 5)
    store.close()
    last = int(disk.list("commitlog")[-1])
    disk.put(f"commitlog/{last + 2 * 2048:020d}", bytes(2048))
    store = open_store(disk, small_config())
    assert numbers_in(store) == list(range(5))
    store.close()
    disk.put(f"commitlog/{last + 2 * 2048:020d}", b"\1" * 2048)
    with pytest.raises(CorruptStore, match="missing"):
        open_store(disk, small_config())
