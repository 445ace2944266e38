"""Consume queues: units and files, fillers, gaps, checksums, many queues with few open files."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records.record_layout import PRE_BLANK_UNIT, UNIT
from broker_core.storage.derived.consume_queue import (
    ConsumeQueue,
    QueueDamaged,
    QueueFileEntry,
)
from broker_core.storage.derived.queue_files import QueueFiles
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

UNITS_PER_FILE = 5
FILE_SIZE = UNITS_PER_FILE * 20
KEY = (b"T", 0)
DIRECTORY = "consumequeue/T/0"


def units(first: int, count: int) -> bytes:
    """Entry n points to log position 1000 n."""
    return b"".join(UNIT.pack(n * 1000, 100 + n, n) for n in range(first, first + count))


def new_queue(disk: SimulatedDisk | None = None) -> tuple[ConsumeQueue, SimulatedDisk]:
    disk = new_disk() if disk is None else disk
    return ConsumeQueue(QueueFiles(disk), FILE_SIZE, *KEY), disk


def path(number: int) -> str:
    return f"{DIRECTORY}/{number * FILE_SIZE:020d}"


class TestAppendAndRead:
    def test_units_are_readable_before_they_are_written(self) -> None:
        queue, disk = new_queue()
        queue.append(0, units(0, 7))
        assert disk.files() == []
        assert (queue.min_offset, queue.max_offset, queue.tail_size) == (0, 7, 140)
        assert queue.read(0, 100) == units(0, 7)
        assert queue.read(3, 2) == units(3, 2)
        assert queue.read(7, 1) == queue.read(100, 1) == b""
        assert queue.unit(6) == (6000, 106, 6)
        assert queue.unit(7) is None
        assert queue.unit(-1) is None

    def test_reads_span_files_and_memory(self) -> None:
        queue, disk = new_queue()
        queue.append(0, units(0, 12))
        queue.write_out()
        queue.append(12, units(12, 3))
        assert disk.files() == [path(0), path(1), path(2)]
        assert disk.content(path(2)) == units(10, 2).ljust(FILE_SIZE, b"\0")
        for start in range(16):
            for count in range(17 - start):
                assert queue.read(start, count) == units(start, min(count, 15 - start))

    def test_known_units_are_skipped(self) -> None:
        queue, _ = new_queue()
        queue.append(0, units(0, 6))
        queue.append(2, units(2, 3))
        queue.append(4, units(4, 4))
        queue.append(8, b"")
        assert queue.read(0, 99) == units(0, 8)

    def test_a_gap_is_an_error_and_changes_nothing(self) -> None:
        queue, _ = new_queue()
        queue.append(0, units(0, 6))
        with pytest.raises(QueueDamaged, match="7"):
            queue.append(7, units(7, 1))
        assert queue.read(0, 99) == units(0, 6)

    def test_a_queue_that_starts_in_the_middle_of_a_file(self) -> None:
        queue, disk = new_queue()
        queue.append(7, units(7, 2))
        assert (queue.min_offset, queue.max_offset) == (7, 9)
        queue.write_out()
        assert disk.files() == [path(1)]
        assert disk.content(path(1)) == PRE_BLANK_UNIT * 2 + units(7, 2) + bytes(20)
        assert PRE_BLANK_UNIT.hex() == "00" * 8 + "7fffffff" + "00" * 8
        assert queue.read(0, 99) == units(7, 2)
        assert queue.unit(6) is None

    @given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=25), st.integers(0, 13))
    def test_any_schedule_reads_back(self, steps: list[tuple[int, bool]], first: int) -> None:
        queue, disk = new_queue()
        end = first
        for count, write in steps:
            queue.append(end, units(end, count))
            end += count if end > first or count else 0
            if write:
                queue.write_out()
            assert queue.read(0, 999) == units(first, end - first)
        queue.write_out()
        for entry in queue.files:
            used = disk.content(f"{DIRECTORY}/{entry.base:020d}")[: entry.used]
            assert zlib.crc32(used) == entry.crc


class TestMinimum:
    def test_raised_to_the_first_record_still_in_the_log(self) -> None:
        for log_start, expected in (
            (0, 0),
            (1, 1),
            (1000, 1),
            (1001, 2),
            (13_000, 13),
            (99_999, 14),
        ):
            queue, _ = new_queue()
            queue.append(0, units(0, 14))
            queue.write_out()
            queue.raise_min(log_start)
            assert queue.min_offset == expected
            assert queue.max_offset == 14

    def test_old_files_go_and_the_last_stays(self) -> None:
        queue, _ = new_queue()
        queue.append(0, units(0, 14))
        queue.write_out()
        queue.raise_min(9_500)
        assert queue.drop_old_files() == [path(0), path(1)]
        assert queue.read(0, 99) == units(10, 4)
        queue.raise_min(99_999)
        assert queue.drop_old_files() == []
        assert (queue.min_offset, queue.max_offset) == (14, 14)
        queue.append(14, units(14, 3))
        assert queue.read(0, 99) == units(14, 3)

    def test_forgotten_entries_keep_the_numbering(self) -> None:
        queue, disk = new_queue()
        queue.append(0, units(0, 8))
        queue.write_out()
        queue.append(8, units(8, 1))
        queue.forget_entries()
        assert disk.files() == []
        assert (queue.min_offset, queue.max_offset) == (9, 9)
        assert queue.read(0, 99) == b""
        queue.append(9, units(9, 2))
        queue.write_out()
        assert queue.read(0, 99) == units(9, 2)
        assert disk.content(path(1))[:80] == PRE_BLANK_UNIT * 4


class TestDamage:
    def restored(self, disk: SimulatedDisk, queue: ConsumeQueue) -> ConsumeQueue:
        again, _ = new_queue(disk)
        again.restore(queue.entry())
        return again

    def written(self) -> tuple[ConsumeQueue, SimulatedDisk]:
        queue, disk = new_queue()
        queue.append(0, units(0, 12))
        queue.write_out()
        return queue, disk

    def test_a_checkpoint_restores_the_queue(self) -> None:
        queue, disk = self.written()
        again = self.restored(disk, queue)
        assert again.read(0, 99) == units(0, 12)
        again.append(12, units(12, 9))
        again.write_out()
        assert again.read(0, 99) == units(0, 21)
        assert again.files[2] == QueueFileEntry(200, 100, zlib.crc32(units(10, 5)))

    @pytest.mark.parametrize("bit", [0, 8 * 37 + 3, 8 * 99])
    def test_a_flipped_bit_is_noticed_at_the_first_read(self, bit: int) -> None:
        queue, disk = self.written()
        disk.flip(path(1), bit)
        again = self.restored(disk, queue)
        assert again.read(0, 5) == units(0, 5)
        with pytest.raises(QueueDamaged, match="checksum") as caught:
            again.read(3, 5)
        assert caught.value.path == path(1)
        with pytest.raises(QueueDamaged):
            again.unit(7)

    def test_missing_and_short_files(self) -> None:
        queue, disk = self.written()
        disk.delete(path(0))
        disk.truncate(path(1), 60)
        again = self.restored(disk, queue)
        with pytest.raises(QueueDamaged, match="missing"):
            again.read(0, 1)
        with pytest.raises(QueueDamaged, match="checksum"):
            again.read(9, 1)
        assert again.read(10, 2) == units(10, 2)
