"""What a Java broker needs to find in our directory, and what it may do there, without Java.

Each case was seen with the real store classes first (`tests/interop`); here it stays checked where
they cannot be had.
"""

from __future__ import annotations

from broker_core.codec.records.record_layout import UNIT
from broker_core.runtime.worker import InlineWorker
from broker_core.storage.derived.consume_queue import ConsumeQueue
from broker_core.storage.derived.queue_files import QueueFiles
from broker_core.storage.log.segment_file import segment_name
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR, SegmentSequence
from broker_core.store.writes.message import Message
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import apache_page, bodies, new_disk, numbered, open_small, put_all

UNITS_PER_FILE = 5


def new_queue(disk: SimulatedDisk) -> ConsumeQueue:
    return ConsumeQueue(QueueFiles(disk), UNITS_PER_FILE * UNIT.size, b"T", 0)


def units(*positions: int) -> bytes:
    return b"".join(UNIT.pack(position, 100, 0) for position in positions)


def put_hourly(disk: SimulatedDisk, count: int, **settings: int) -> list[int]:
    """A run of the store with one keyed message an hour; returns the store times."""
    times = []
    with open_small(disk, **settings) as store:
        for number in range(count):
            disk.clock.advance(3_600_000)
            times.append(store.append(Message("T", b"x", keys=f"k{number}")).store_timestamp)
        store.flush()
    return times


def test_the_page_never_names_a_time_inside_an_index_file_that_grows() -> None:
    """Java drops that file after a crash and must start before its first record."""
    disk = new_disk()
    times = put_hourly(disk, 40)
    closed = apache_page(disk)
    assert (closed.logics_msg_timestamp, closed.index_msg_timestamp) == (times[-1], times[-1])
    with open_small(disk):
        running = apache_page(disk)
    # 32 entries, less the unused first one, fill a file.
    assert running.index_msg_timestamp == times[30]
    assert running.physic_msg_timestamp == running.logics_msg_timestamp == times[31]
    assert apache_page(disk) == closed


def test_a_file_of_the_same_millisecond_counts_as_growing() -> None:
    disk = new_disk()
    with open_small(disk) as store:
        for number in range(40):
            store.append(Message("T", b"x", keys=f"k{number}"))
        store.flush()
    with open_small(disk):
        assert apache_page(disk).index_msg_timestamp == 0


def test_a_queue_without_records_names_no_position_above_the_log() -> None:
    """Java takes the end of the last unit for what is dispatched already."""
    disk = new_disk()
    queue = new_queue(disk)
    queue.continue_at(7, log_start=4096)
    queue.write_out()
    assert (queue.min_offset, queue.max_offset) == (7, 7)
    content = disk.content("consumequeue/T/0/00000000000000000100")
    assert content == (UNIT.pack(4095, 1, 0) * 2).ljust(100, b"\0")


def test_numbering_that_starts_again_replaces_the_queue() -> None:
    """So it is in the log when a topic was deleted in Java and then used again."""
    queue = new_queue(new_disk())
    queue.append(0, units(0, 100, 200, 300, 400, 500))
    queue.append(4, units(400, 500))
    assert queue.max_offset == 6
    queue.append(0, units(600, 700))
    assert (queue.min_offset, queue.max_offset) == (0, 2)
    assert queue.read(0, 9) == units(600, 700)


def test_numbering_that_starts_again_after_a_checkpoint() -> None:
    disk = new_disk()
    queue = new_queue(disk)
    queue.append(0, units(0, 100, 200))
    queue.write_out()
    again = new_queue(disk)
    again.restore(queue.entry())
    again.append(1, units(300))
    assert (again.min_offset, again.max_offset) == (1, 2)
    assert again.read(1, 9) == units(300)


def test_a_spare_that_lost_its_name_is_not_used() -> None:
    """A Java broker started by mistake removes files behind the log before it sees the lock."""
    disk = new_disk()
    disk.make_dir(COMMIT_LOG_DIR)
    log = SegmentSequence(disk, 4096, [], 0, InlineWorker())
    log.reserve(3)
    disk.unlink(f"{COMMIT_LOG_DIR}/{segment_name(4096)}")
    log.reserve(2)
    assert [log.roll().base for _ in range(2)] == [0, 4096]
    assert disk.exists(f"{COMMIT_LOG_DIR}/{segment_name(4096)}")
    log.reserve(1)
    disk.unlink(f"{COMMIT_LOG_DIR}/{segment_name(8192)}")
    log.remove_spares()
    log.release()


def test_retention_leaves_no_queue_file_below_the_minimum() -> None:
    """Java looks for the minimum in the first file only. The units may still be in memory."""
    disk = new_disk()
    with open_small(disk, file_reserved_hours=1) as store:
        put_all(store, "T", numbered(200, 300))
        disk.clock.advance(2 * 3_600_000)
        store.clean(manual=True)
        low, high = store.offsets("T", 0)
        assert 20 < low < high == 200
        names = sorted(path for path in disk.files() if path.startswith("consumequeue/T/0/"))
        assert int(names[0].rpartition("/")[2]) == low * 20 // 400 * 400
        assert bodies(store, "T") == numbered(200, 300)[low:]
