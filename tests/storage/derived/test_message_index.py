"""The key index: Apache's layout, queries, several files, rebuilding, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.storage.derived.message_index import (
    ENTRY,
    INDEX_DIR,
    IndexDamaged,
    MessageIndex,
    key_hash,
)
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

BEGIN_MS = 1_700_000_000_123
SCANNED = ENTRY.__class__(">iqq")
FOREVER = (0, 1 << 62)


def scanned(*keys: tuple[bytes, int, int]) -> bytes:
    """(topic#key text, position, store time) as the log scan hands them over."""
    return b"".join(
        SCANNED.pack(key_hash(*text.split(b"#", 1)), position, stored_ms)
        for text, position, stored_ms in keys
    )


def many(count: int, first: int = 0, key: bytes = b"T#k", step_ms: int = 1000) -> bytes:
    return scanned(*((key, n * 100, BEGIN_MS + n * step_ms) for n in range(first, first + count)))


def new_index(disk: SimulatedDisk | None = None, slots: int = 8, entries: int = 11) -> MessageIndex:
    return MessageIndex(new_disk() if disk is None else disk, slots, entries)


def positions(index: MessageIndex, count: int = 64, times: tuple[int, int] = FOREVER) -> list[int]:
    return index.query(b"T", b"k", count, *times)


def test_the_example_of_the_specification() -> None:
    """Three entries with the default sizes: slots, entries and header byte by byte."""
    disk = new_disk()
    index = new_index(disk, 5_000_000, 20_000)
    index.append(
        scanned(
            (b"TopicTest#U1", 4096, BEGIN_MS),
            (b"TopicTest#k1", 4096, BEGIN_MS),
            (b"TopicTest#k1", 4300, BEGIN_MS + 5500),
        ),
        BEGIN_MS,
    )
    (name,) = disk.files()
    data = disk.content(name)
    assert data[:40].hex(" ") == (
        "00 00 01 8b cf e5 68 7b 00 00 01 8b cf e5 7d f7 00 00 00 00 00 00 10 00 "
        "00 00 00 00 00 00 10 cc 00 00 00 02 00 00 00 04"
    )
    assert data[10981408:10981412].hex() == "00000001"
    assert data[10984136:10984140].hex() == "00000003"
    assert data[20000060:20000120].hex(" ") == (
        "00 29 e3 fe 00 00 00 00 00 00 10 00 00 00 00 00 00 00 00 00 "
        "00 29 e6 a8 00 00 00 00 00 00 10 00 00 00 00 00 00 00 00 00 "
        "00 29 e6 a8 00 00 00 00 00 00 10 cc 00 00 00 05 00 00 00 02"
    )
    assert index.query(b"TopicTest", b"k1", 64, *FOREVER) == [4300, 4096]
    index.close()


class TestQuery:
    def test_newest_first_and_no_more_than_asked_for(self) -> None:
        index = new_index(entries=100)
        index.append(many(20), BEGIN_MS)
        assert positions(index) == [n * 100 for n in reversed(range(20))]
        assert positions(index, 3) == [1900, 1800, 1700]
        assert index.query(b"T", b"other", 64, *FOREVER) == []
        assert index.query(b"U", b"k", 64, *FOREVER) == []

    def test_over_many_files(self) -> None:
        index = new_index()
        for n in range(45):
            index.append(many(1, n), BEGIN_MS + n)
        assert len(index.files) == 5
        assert positions(index) == [n * 100 for n in reversed(range(45))]
        assert positions(index, 12) == [n * 100 for n in range(44, 32, -1)]

    def test_one_append_may_fill_several_files(self) -> None:
        disk = new_disk()
        index = new_index(disk)
        index.append(many(45), BEGIN_MS)
        assert len(index.files) == 5
        assert positions(index) == [n * 100 for n in reversed(range(45))]
        assert [file.first_position for file in index.files] == [0, 1000, 2000, 3000, 4000]

    def test_a_repeated_record_is_found_once(self) -> None:
        index = new_index(entries=100)
        index.append(many(3) + many(3), BEGIN_MS)
        assert positions(index) == [200, 100, 0]

    def test_slots_shared_by_different_keys(self) -> None:
        index = new_index(slots=1, entries=100)
        keys = [b"T#%d" % n for n in range(30)]
        index.append(scanned(*((key, n, BEGIN_MS) for n, key in enumerate(keys))), BEGIN_MS)
        for n in range(30):
            assert index.query(b"T", b"%d" % n, 64, *FOREVER) == [n]

    def test_equal_hashes_are_for_the_caller_to_tell_apart(self) -> None:
        assert key_hash(b"T", b"Aa") == key_hash(b"T", b"BB")
        index = new_index()
        index.append(scanned((b"T#Aa", 1, BEGIN_MS), (b"T#BB", 2, BEGIN_MS)), BEGIN_MS)
        assert index.query(b"T", b"Aa", 64, *FOREVER) == [2, 1]

    @given(
        st.lists(st.integers(0, 3_000), min_size=1, max_size=40),
        st.integers(-2_000, 70_000),
        st.integers(-2_000, 70_000),
    )
    def test_the_time_range_loses_nothing(self, steps: list[int], low: int, high: int) -> None:
        """Entries keep seconds only: a query may return a neighbour, never lose a match."""
        times, now = [], BEGIN_MS
        for step in steps:
            now += step
            times.append(now)
        index = new_index()
        for n, stored_ms in enumerate(times):
            index.append(scanned((b"T#k", n, stored_ms)), stored_ms)
        begin, end = BEGIN_MS + low, BEGIN_MS + high
        found = positions(index, 99, (max(begin, 0), max(end, 0)))
        assert found == sorted(found, reverse=True)
        assert {n for n, t in enumerate(times) if begin <= t <= end} <= set(found)
        assert all(begin - 1000 <= times[n] <= end + 1000 for n in found)
        index.close()


class TestFiles:
    def test_names_rise_whatever_the_clock_does(self) -> None:
        disk = new_disk()
        index = new_index(disk)
        for n, wall_ms in enumerate((BEGIN_MS, BEGIN_MS, BEGIN_MS - 999_999, BEGIN_MS, 0)):
            index.append(many(10, 10 * n), wall_ms)
        names = [file.name for file in index.files]
        assert names == sorted(set(names))
        assert all(len(name) == 17 and name.isdigit() for name in names)

    def test_a_new_file_continues_from_the_end_of_the_last(self) -> None:
        index = new_index()
        index.append(many(11), BEGIN_MS)
        first, second = (file.header for file in index.files)
        assert first.end_timestamp == BEGIN_MS + 9_000
        assert (first.begin_position, first.end_position) == (0, 900)
        assert (second.begin_timestamp, second.end_timestamp) == (BEGIN_MS + 10_000,) * 2

    def test_old_files_go_and_the_last_stays(self) -> None:
        disk = new_disk()
        index = new_index(disk)
        index.append(many(25), BEGIN_MS)
        assert index.drop_before(950) == []
        dropped = index.drop_before(1_500)
        assert len(dropped) == 1
        index.unlink(dropped)
        assert len(disk.files()) == 2
        assert positions(index) == [n * 100 for n in range(24, 9, -1)]
        assert len(index.drop_before(1 << 40)) == 1
        assert len(index.files) == 1


class TestRestore:
    def closed(self, count: int) -> tuple[SimulatedDisk, list]:
        disk = new_disk()
        index = new_index(disk)
        index.append(many(count), BEGIN_MS)
        for file in index.files:
            index.seal(file)
        entries = index.entries()
        index.close()
        return disk, entries

    @pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25])
    def test_the_index_continues_after_a_clean_stop(self, count: int) -> None:
        disk, entries = self.closed(count)
        index = new_index(disk)
        assert index.restore(entries, clean=True) is None
        index.append(many(7, count), BEGIN_MS)
        assert positions(index) == [n * 100 for n in reversed(range(count + 7))]

    def test_after_a_crash_the_open_file_is_built_again(self) -> None:
        disk, entries = self.closed(25)
        disk.put(f"{INDEX_DIR}/29990101000000000", b"not in the checkpoint")
        index = new_index(disk)
        assert index.restore(entries, clean=False) == 2_000
        assert len(disk.files()) == 2
        index.append(many(8, 20), BEGIN_MS)
        assert positions(index) == [n * 100 for n in reversed(range(28))]

    def test_a_damaged_file_is_never_believed(self) -> None:
        disk, entries = self.closed(25)
        disk.flip(f"{INDEX_DIR}/{entries[0].name}", 8 * 60)
        index = new_index(disk)
        assert index.restore(entries, clean=True) is None
        assert positions(index, 5) == [2400, 2300, 2200, 2100, 2000]
        with pytest.raises(IndexDamaged) as caught:
            positions(index)
        assert caught.value.position == 0
        index.drop_from(caught.value.position)
        index.append(many(25), BEGIN_MS)
        assert positions(index) == [n * 100 for n in reversed(range(25))]

    def test_a_damaged_or_missing_last_file_is_rebuilt(self) -> None:
        for harm in ("flip", "delete", "truncate"):
            disk, entries = self.closed(25)
            path = f"{INDEX_DIR}/{entries[2].name}"
            getattr(disk, harm)(path, *([] if harm == "delete" else [100]))
            index = new_index(disk)
            assert index.restore(entries, clean=True) == 2_000
            assert positions(index) == [n * 100 for n in range(19, -1, -1)]

    def test_keys_of_one_record_in_two_files_are_not_put_twice(self) -> None:
        """Eleven entries fill a file of ten; the record's keys straddle."""
        disk = new_disk()
        index = new_index(disk)
        straddling = scanned(*((b"T#k%d" % n, 900, BEGIN_MS) for n in range(4)))
        index.append(many(8), BEGIN_MS)
        index.append(straddling, BEGIN_MS)
        for file in index.files:
            index.seal(file)
        assert [file.first_position for file in index.files] == [0, 900]
        entries = index.entries()
        index.close()
        again = new_index(disk)
        assert again.restore(entries, clean=False) == 900
        known = again.known_prefix(straddling)
        assert known == 2 * 20
        again.append(straddling, BEGIN_MS, known)
        for n in range(4):
            assert again.query(b"T", b"k%d" % n, 64, *FOREVER) == [900]
        assert sum(file.header.next_entry - 1 for file in again.files) == 12
        assert again.known_prefix(many(1, 50)) == 0
