"""Staging files that are used again: never while a client may still write to them, and nothing of
what an earlier batch left in them is ever published."""

from __future__ import annotations

import pytest

from broker_core.codec.records.staged_block import StagedPart
from broker_core.errors import StagingRefused
from broker_core.storage.staging.staging_area import (
    SPARE_SHARE,
    STAGING_DIR,
    StagingArea,
)
from broker_core.storage.staging.staging_file_reuse import IDLE_S
from broker_core.store.message_store import MessageStore
from tests.fakes.manual_worker import ManualWorker
from tests.fakes.simulated_disk import SimulatedDisk
from tests.storage.staging.test_staged_run import path_of
from tests.storage.staging.test_staging_area import HOUR_MS, area, staged
from tests.store.small_store import bodies, new_disk, open_small, run_of


def names(disk: SimulatedDisk) -> list[str]:
    return [path.split("/")[1] for path in disk.files() if path.startswith(STAGING_DIR)]


def publish(store: MessageStore, *batches: StagedPart) -> None:
    """As `MessageStore.publish`, without an event loop."""
    with store.staging.open_runs(batches) as runs:
        assert store.append_group(runs).ok
    store.staging.claim(batches)
    store.flush()
    for batch in batches:
        store.staging.recycle(batch.staging_id)


def sealed(staging: StagingArea, *values: bytes) -> StagedPart:
    staging_id = staging.begin()
    staging.append(staging_id, run_of(*values), len(values))
    return staging.seal(staging_id)


def used(staging: StagingArea, *values: bytes) -> StagedPart:
    """Published, as far as the staging area knows."""
    batch = sealed(staging, *values)
    staging.claim([batch])
    staging.recycle(batch.staging_id)
    return batch


@pytest.mark.parametrize("second", [(b"s",), (b"x" * 900, b"y" * 900, b"z" * 900)])
def test_the_next_batch_is_published_and_nothing_of_the_last(second: tuple[bytes, ...]) -> None:
    disk = new_disk()
    store = open_small(disk)
    first = staged(store, b"a" * 500, b"b" * 500)
    publish(store, first)
    assert names(disk) == ["spare-0"]
    assert store.staging.size == 0
    node = disk.file_node(f"{STAGING_DIR}/spare-0")
    batch = staged(store, *second)
    assert names(disk) == [batch.staging_id]
    assert disk.file_node(path_of(batch)) == node
    with pytest.raises(StagingRefused):
        store.publish_now([first])
    publish(store, batch)
    assert bodies(store, "T") == [b"a" * 500, b"b" * 500, *second]
    store.close()
    assert names(disk) == []


def test_only_files_of_published_batches_are_used_again() -> None:
    """The writer of any other one may be alive and have it open."""
    disk = new_disk()
    staging = area(disk)
    dropped, draft = sealed(staging, b"a"), staging.begin()
    staging.drop(dropped.staging_id)
    staging.drop(draft)
    not_claimed = sealed(staging, b"b")
    staging.recycle(not_claimed.staging_id)
    staging.recycle(not_claimed.staging_id)
    sealed(staging, b"c")
    disk.clock.advance(HOUR_MS + 1)
    staging.expire()
    assert names(disk) == []


@pytest.mark.parametrize("change", [-1, 1])
def test_another_length_is_refused(change: int) -> None:
    disk = new_disk()
    store = open_small(disk)
    publish(store, staged(store, b"a" * 800))
    batch = staged(store, b"b")
    content = disk.content(path_of(batch))
    disk.overwrite(path_of(batch), content[:change] if change < 0 else content + b"x")
    with pytest.raises(StagingRefused, match="bytes, the sealed part"):
        store.publish_now([batch])
    disk.overwrite(path_of(batch), content)
    assert store.publish_now([batch]).ok
    assert bodies(store, "T") == [b"a" * 800, b"b"]


def test_after_a_power_cut_a_batch_in_a_used_file_is_whole_or_refused() -> None:
    disk = new_disk()
    store = open_small(disk)
    publish(store, staged(store, b"old" * 700, b"old" * 600))
    batch = staged(store, b"x" * 2_000, b"y" * 2_000)
    outcomes = set()
    for state in disk.crash_states(limit=60):
        again = open_small(disk.reboot(state))
        before = bodies(again, "T")
        try:
            outcomes.add(again.publish_now([batch]).ok)
            assert bodies(again, "T") == [*before, b"x" * 2_000, b"y" * 2_000]
        except StagingRefused:
            outcomes.add(False)
            assert bodies(again, "T") == before
    assert False in outcomes


def test_after_a_kill_batch_and_spare_are_there() -> None:
    disk = new_disk()
    store = open_small(disk)
    batches = [staged(store, b"a" * 100), staged(store, b"b" * 300)]
    publish(store, *batches)
    batch = staged(store, b"c")
    again = open_small(disk.kill())
    assert sorted(names(disk)) == sorted([batch.staging_id, "spare-0"])
    assert again.publish_now([batch]).ok
    publish(again, staged(again, b"d"))
    assert bodies(again, "T") == [b"a" * 100, b"b" * 300, b"c", b"d"]


def test_there_are_never_too_many() -> None:
    disk = new_disk()
    staging = area(disk, size_max=SPARE_SHARE * 1_000)
    batches = [sealed(staging, b"x" * 300) for _ in range(5)]
    staging.claim(batches)
    for batch in batches:
        staging.recycle(batch.staging_id)
    assert len(names(disk)) == 1_000 // batches[0].size


def test_spares_go_when_their_room_is_needed() -> None:
    disk = new_disk()
    staging = area(disk, size_max=8_000)
    batches = [sealed(staging, b"x" * 300), sealed(staging, b"x" * 300)]
    staging.claim(batches)
    for batch in batches:
        staging.recycle(batch.staging_id)
    assert len(names(disk)) == 2
    staging_id = staging.begin()
    staging.append(staging_id, run_of(b"x" * 7_500), 1)
    assert names(disk) == [staging_id]
    with pytest.raises(StagingRefused, match="staging is full"):
        staging.append(staging_id, run_of(b"x" * 500), 1)


def test_what_a_used_file_takes_counts_once() -> None:
    staging = area(new_disk(), size_max=80_000)
    size = used(staging, b"x" * 5_000).size
    staging_id = staging.begin()
    assert staging.size == size
    staging.append(staging_id, run_of(b"y"), 1)
    assert staging.size == size
    staging.append(staging_id, run_of(b"y" * 6_000), 1)
    assert staging.size > 6_000
    assert staging.seal(staging_id).size == staging.size


def test_unused_spares_are_removed() -> None:
    disk = new_disk()
    staging = area(disk)
    used(staging, b"a")
    disk.clock.advance(int(IDLE_S * 1000))
    staging.expire()
    assert names(disk) == ["spare-0"]
    disk.clock.advance(1)
    staging.expire()
    assert names(disk) == []


def test_a_spare_that_vanished_is_not_missed() -> None:
    disk = new_disk()
    store = open_small(disk)
    publish(store, staged(store, b"a"))
    disk.unlink(f"{STAGING_DIR}/spare-0")
    publish(store, staged(store, b"b"))
    assert bodies(store, "T") == [b"a", b"b"]


def test_files_are_removed_by_the_worker() -> None:
    disk, worker = new_disk(), ManualWorker()
    staging = StagingArea(disk, disk.clock, 1 << 20, HOUR_MS, worker)
    used(staging, b"a")
    disk.clock.advance(HOUR_MS)
    staging.expire()
    assert (names(disk), worker.waiting) == (["spare-0"], 1)
    # Dropped already: no writer gets it.
    assert sealed(staging, b"b").staging_id in names(disk)
    worker.run_all()
    assert "spare-0" not in names(disk)
