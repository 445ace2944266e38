"""All consume queues of a store."""

from __future__ import annotations

from broker_core.codec.records.record_layout import UNIT, UNIT_SIZE
from broker_core.storage.derived.consume_queue_set import (
    ConsumeQueueSet,
    cut_unknown_bytes,
    end_by_scan,
    queue_directories,
    queues_with_missing_files,
)
from tests.store.small_store import new_disk

UNITS_PER_FILE = 5


FILE_SIZE = UNITS_PER_FILE * 20


KEY = (b"T", 0)


DIRECTORY = "consumequeue/T/0"


def units(first: int, count: int) -> bytes:
    """Entry n points to log position 1000 n."""
    return b"".join(UNIT.pack(n * 1000, 100 + n, n) for n in range(first, first + count))


def path(number: int) -> str:
    return f"{DIRECTORY}/{number * FILE_SIZE:020d}"


class TestSet:
    def test_many_queues_need_few_open_files(self) -> None:
        disk = new_disk()
        queues = ConsumeQueueSet(disk, FILE_SIZE)
        count = 600
        for start in (0, 4, 8):
            queues.append({(b"T", n): (start, units(start, 4)) for n in range(count)})
            queues.write_out()
        for number in range(count):
            queue = queues.find(b"T", number)
            assert queue is not None
            assert queue.read(0, 99) == units(0, 12)
        assert len(queues) == count
        assert len(queues._files._open) <= 256
        queues.close()

    def test_what_a_checkpoint_must_sync(self) -> None:
        disk = new_disk()
        queues = ConsumeQueueSet(disk, FILE_SIZE)
        queues.append({(b"A", 1): (0, units(0, 7)), (b"B", 2): (0, units(0, 1))})
        queues.write_out(least_size=100)
        assert [p for p in disk.files() if "/B/" in p] == [], "too little to write yet"
        queues.write_out()
        files, directories = queues.take_unsynced()
        assert sorted(files) == [
            f"consumequeue/A/1/{0:020d}", f"consumequeue/A/1/{100:020d}",
            f"consumequeue/B/2/{0:020d}",
        ]  # fmt: skip
        assert set(directories) == {
            "consumequeue", "consumequeue/A", "consumequeue/A/1", "consumequeue/B",
            "consumequeue/B/2",
        }  # fmt: skip
        assert queues.take_unsynced() == ([], [])
        queues.append({(b"B", 2): (1, units(1, 1))})
        queues.write_out()
        assert queues.take_unsynced() == ([f"consumequeue/B/2/{0:020d}"], [])
        queues.close()

    def test_after_a_crash_only_what_the_checkpoint_knows_is_left(self) -> None:
        disk = new_disk()
        queues = ConsumeQueueSet(disk, FILE_SIZE)
        queues.append({KEY: (0, units(0, 7)), (b"New", 0): (0, units(0, 3))})
        queues.write_out()
        entries = [entry for entry in queues.entries() if entry.topic == b"T"]
        queues.append({KEY: (7, units(7, 9))})
        queues.write_out()
        queues.close()
        disk.create("consumequeue/notes.txt").close()
        assert cut_unknown_bytes(disk, entries, FILE_SIZE) == set()
        assert disk.content(path(1)) == units(5, 2).ljust(FILE_SIZE, b"\0")
        left = [p for p in disk.files() if p.startswith("consumequeue/")]
        assert left == [path(0), path(1), "consumequeue/notes.txt"]
        again = ConsumeQueueSet(disk, FILE_SIZE)
        again.restore(entries)
        assert again.queue(KEY).read(0, 99) == units(0, 7)
        again.close()
        disk.truncate(path(1), 30)
        assert cut_unknown_bytes(disk, entries, FILE_SIZE) == {KEY}
        disk.delete(path(0))
        assert cut_unknown_bytes(disk, entries, FILE_SIZE) == {KEY}
        assert queues_with_missing_files(disk, entries) == {KEY}

    def test_the_end_by_the_files_alone(self) -> None:
        for first, count in ((0, 1), (0, 5), (0, 7), (0, 23), (7, 3), (10, 5), (12, 0)):
            disk = new_disk()
            queues = ConsumeQueueSet(disk, FILE_SIZE)
            queues.append({KEY: (first, units(first, count))})
            queues.write_out()
            queues.close()
            assert end_by_scan(disk, KEY, FILE_SIZE) == (first + count if count else 0)
            assert queue_directories(disk) == ([KEY] if count else [])

    def test_the_end_is_before_the_first_unit_without_size_or_position(self) -> None:
        sizes = (1, 255, 256, 1 << 16, 1 << 24, (1 << 31) - 1)
        good = b"".join(UNIT.pack(number << 40, size, -1) for number, size in enumerate(sizes))
        for bad in ((0, 0), (0, -1), (-1, 1), (5, -(1 << 31)), (-(1 << 63), 256)):
            for count in range(len(sizes) + 1):
                disk = new_disk()
                data = good[: count * UNIT_SIZE] + UNIT.pack(*bad, -1) + good
                disk.put("consumequeue/T/0/" + "0" * 20, data)
                assert end_by_scan(disk, KEY, len(data)) == count, (bad, count)

    def test_foreign_directories_are_left_alone(self) -> None:
        disk = new_disk()
        for name in ("T/0/x", "T/01/x", "T/-1/x", "T/a/x", "bad name/0/x", "CON/0/x", "T/٣/x"):
            disk.put(f"consumequeue/{name}", b"")
        assert queue_directories(disk) == [(b"T", 0)]
