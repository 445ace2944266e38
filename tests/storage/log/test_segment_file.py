"""One file of the commit log."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from broker_core.storage.log.segment_file import create_segment, segment_name
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR
from broker_core.storage.log.write_buffer_pool import WriteBufferPool
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

SIZE = 4096


def log_disk(**options: Any) -> SimulatedDisk:
    disk = new_disk(**options)
    disk.make_dir(COMMIT_LOG_DIR)
    disk.sync_dir("")
    return disk


def names(disk: SimulatedDisk) -> list[int]:
    return [int(path.rpartition("/")[2]) for path in disk.files() if path.startswith("commitlog/")]


class TestSegment:
    def test_names_are_positions(self) -> None:
        assert segment_name(0) == "0" * 20
        assert segment_name(2 * (1 << 30)) == "00000000002147483648"

    def test_a_new_file_is_real_before_it_is_used(self) -> None:
        disk = log_disk()
        segment = create_segment(disk, COMMIT_LOG_DIR, SIZE, SIZE, warm=False)
        path = f"{COMMIT_LOG_DIR}/{segment_name(SIZE)}"
        for state in disk.crash_states():
            rebooted = disk.reboot(state)
            assert rebooted.content(path) == bytes(SIZE)
        assert not disk.file_node(path).holes
        assert (segment.base, segment.wrote, segment.committed) == (SIZE, 0, 0)
        segment.retire()

    def test_a_leftover_is_replaced(self) -> None:
        disk = log_disk()
        disk.put(f"{COMMIT_LOG_DIR}/{segment_name(0)}", b"old" * 1000)
        create_segment(disk, COMMIT_LOG_DIR, 0, SIZE, warm=True).retire()
        assert disk.content(f"{COMMIT_LOG_DIR}/{segment_name(0)}") == bytes(SIZE)

    @pytest.mark.parametrize("step", range(1, 5))
    def test_a_failed_creation_leaves_no_file(self, step: int) -> None:
        disk = log_disk()
        disk.fail(disk.operation_count + step, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            create_segment(disk, COMMIT_LOG_DIR, 0, SIZE, warm=False)
        assert names(disk) == []

    def test_a_retired_segment_closes_behind_its_last_reader(self) -> None:
        disk = log_disk()
        segment = create_segment(disk, COMMIT_LOG_DIR, 0, SIZE, warm=False)
        view = segment.view[:4]
        segment.hold()
        segment.hold()
        segment.retire()
        segment.leave()
        assert bytes(view) == bytes(4)
        view.release()
        segment.leave()
        assert not disk.mapped

    def test_stored_bytes_are_readable_and_buffered_ones_are_not(self) -> None:
        disk = log_disk()
        direct = create_segment(disk, COMMIT_LOG_DIR, 0, SIZE, warm=False)
        direct.target[:4] = b"data"
        direct.stored(4)
        assert (direct.wrote, direct.committed, direct.buffered) == (4, 4, False)
        pool = WriteBufferPool(1, SIZE)
        buffered = create_segment(disk, COMMIT_LOG_DIR, SIZE, SIZE, warm=False)
        buffer = pool.borrow()
        assert buffer is not None
        buffered.use_buffer(buffer)
        buffered.target[:4] = b"data"
        buffered.stored(4)
        assert (buffered.wrote, buffered.committed, buffered.buffered) == (4, 0, True)
        buffered.commit_bytes(0, 4)
        buffered.committed_to(4)
        assert bytes(buffered.view[:4]) == b"data"
        assert pool.borrow() is None
        buffered.stored(SIZE)
        buffered.committed_to(SIZE)
        assert not buffered.buffered
        assert pool.available == 1
