"""Segments and their sequence: positions, readers, spares, reservations that leave nothing."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from broker_core.errors import DiskFull
from broker_core.runtime.worker import InlineWorker, Worker
from broker_core.storage.log.segment_file import Segment, create_segment, segment_name
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR, SegmentSequence
from broker_core.storage.log.write_buffer_pool import WriteBufferPool
from tests.fakes.manual_worker import ManualWorker
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

SIZE = 4096


def log_disk(**options: Any) -> SimulatedDisk:
    disk = new_disk(**options)
    disk.make_dir(COMMIT_LOG_DIR)
    disk.sync_dir("")
    return disk


def sequence(disk: SimulatedDisk, worker: Worker | None = None, **options: Any) -> SegmentSequence:
    return SegmentSequence(disk, SIZE, [], 0, worker or InlineWorker(), **options)


def names(disk: SimulatedDisk) -> list[int]:
    return [int(path.rpartition("/")[2]) for path in disk.files() if path.startswith("commitlog/")]


class TestSequence:
    def test_positions_lead_to_their_file(self) -> None:
        disk = log_disk()
        segments = sequence(disk)
        assert (segments.start, segments.next_base, segments.last) == (0, 0, None)
        assert segments.find(0) is None
        first, second = segments.roll(), segments.roll()
        assert [segments.find(at) for at in (0, SIZE - 1)] == [first, first]
        assert [segments.find(at) for at in (SIZE, 2 * SIZE - 1)] == [second, second]
        assert segments.find(2 * SIZE) is None
        assert segments.find(-1) is None
        assert segments.last is second

    def test_one_spare_is_prepared_ahead(self) -> None:
        disk, worker = log_disk(), ManualWorker()
        segments = sequence(disk, worker)
        segments.prepare_ahead()
        assert worker.waiting == 0, "nothing is ahead of a log that has not begun"
        segments.roll()
        segments.prepare_ahead()
        segments.prepare_ahead()
        assert worker.waiting == 1
        worker.run_all()
        assert names(disk) == [0, SIZE]
        segments.prepare_ahead()
        assert worker.waiting == 0
        operations = disk.operation_count
        segments.roll()
        assert disk.operation_count == operations, "a prepared roll touches no disk"

    def test_a_roll_takes_over_a_preparation_under_way(self) -> None:
        disk, worker = log_disk(), ManualWorker()
        segments = sequence(disk, worker)
        segments.roll()
        segments.prepare_ahead()
        assert segments.roll().base == SIZE
        worker.run_all()
        segments.prepare_ahead()
        worker.run_all()
        assert [segments.roll().base, segments.roll().base] == [2 * SIZE, 3 * SIZE]
        assert names(disk) == [0, SIZE, 2 * SIZE, 3 * SIZE]
        for segment in segments.all:
            segment.view[:1] = b"x"
            segment.file.wrote(0, 1)
        segments.release()
        assert all(disk.content(path)[:1] == b"x" for path in disk.files())

    def test_a_failed_preparation_is_not_fatal(self) -> None:
        disk = log_disk()
        segments = sequence(disk)
        segments.roll()
        disk.fail(disk.operation_count + 1, errno.ENOSPC)
        segments.prepare_ahead()
        assert names(disk) == [0]
        assert segments.roll().base == SIZE

    def test_a_failed_reservation_leaves_nothing(self) -> None:
        disk = log_disk(space_limit=3 * SIZE)
        segments = sequence(disk)
        segments.roll()
        tree = disk.tree()
        with pytest.raises(DiskFull, match="commitlog/") as caught:
            segments.reserve(3)
        assert caught.value.retriable
        assert disk.tree() == tree
        segments.reserve(2)
        assert names(disk) == [0, SIZE, 2 * SIZE]
        tree = disk.tree()
        with pytest.raises(DiskFull):
            segments.reserve(3)
        assert disk.tree() == tree, "spares that were there before stay"
        assert [segments.roll().base, segments.roll().base] == [SIZE, 2 * SIZE]

    def test_spares_are_removed_by_a_clean_stop(self) -> None:
        disk, worker = log_disk(), ManualWorker()
        segments = sequence(disk, worker)
        segments.roll()
        segments.reserve(3)
        segments.prepare_ahead()
        segments.remove_spares()
        segments.release()
        assert names(disk) == [0]
        assert not disk.mapped

    def test_old_segments_are_dropped_whole_and_never_the_last(self) -> None:
        segments = sequence(log_disk())
        made = [segments.roll() for _ in range(4)]
        assert segments.drop_before(SIZE - 1) == []
        assert segments.drop_before(2 * SIZE + 5) == made[:2]
        assert segments.start == 2 * SIZE
        assert segments.find(SIZE) is None
        assert segments.drop_before(100 * SIZE) == made[2:3]
        assert segments.all == made[3:]

    def test_fail_fast_is_decided_at_the_reservation(self) -> None:
        pool = WriteBufferPool(1, SIZE)
        segments = sequence(log_disk(), pool=pool, pool_fail_fast=True)
        segments.reserve(2)
        assert segments.roll().buffered
        with pytest.raises(DiskFull, match="write buffer"):
            segments.reserve(1)
        assert not segments.roll().buffered, "what was reserved goes on without a buffer"


def test_segments_of_an_earlier_run() -> None:
    disk = log_disk()
    create_segment(disk, COMMIT_LOG_DIR, 3 * SIZE, SIZE, warm=False).retire()
    opened = Segment(disk.open(f"{COMMIT_LOG_DIR}/{segment_name(3 * SIZE)}"), 3 * SIZE, SIZE)
    segments = SegmentSequence(disk, SIZE, [opened], 3 * SIZE, InlineWorker())
    assert (segments.start, segments.next_base) == (3 * SIZE, 4 * SIZE)
    assert segments.roll().base == 4 * SIZE


class TestRoomAhead:
    def test_files_for_a_long_append_are_made_by_the_worker(self) -> None:
        disk, worker, tried = log_disk(), ManualWorker(), []
        segments = sequence(disk, worker)
        assert not segments.prepare(2, lambda: tried.append("nothing to follow"))
        segments.roll()
        segments.prepare_ahead()
        assert segments.prepare(3, lambda: tried.append("first"))
        # Asked for already
        assert not segments.prepare(3, lambda: tried.append("second"))
        assert names(disk) == [0]
        worker.run_all()
        assert tried == ["first"]
        assert names(disk) == [0, SIZE, 2 * SIZE, 3 * SIZE]
        assert [segments.roll().base for _ in range(3)] == [SIZE, 2 * SIZE, 3 * SIZE]
        assert segments.prepare(1, lambda: tried.append("third"))
        worker.run_all()
        assert segments.roll().base == 4 * SIZE
        segments.release()

    def test_a_waiting_reservation_takes_prepared_files_first(self) -> None:
        disk, worker, tried = log_disk(), ManualWorker(), []
        segments = sequence(disk, worker)
        segments.roll()
        segments.prepare(2, lambda: tried.append(1))
        segments.reserve(3)
        assert segments.prepare(4, lambda: tried.append(2))
        worker.run_all()
        assert [segments.roll().base for _ in range(4)] == [SIZE * n for n in range(1, 5)]
        assert names(disk) == [SIZE * n for n in range(5)]
        segments.release()

    def test_a_full_disk_is_reported_by_the_append(self) -> None:
        disk, tried = log_disk(), []
        segments = sequence(disk)
        segments.roll()
        disk.space_limit = 2 * SIZE + SIZE // 2
        assert segments.prepare(3, lambda: tried.append(1))
        assert tried == [1]
        with pytest.raises(DiskFull):
            segments.reserve(3)
        assert segments.roll().base == SIZE
        segments.release()
