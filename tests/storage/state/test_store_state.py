"""Small files of a store: state slots, dispatch checkpoint, checkpoint page, marks, replacement."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records.checkpoint_page import CheckpointPage
from broker_core.errors import StoreFormatUnsupported, StoreLocked
from broker_core.storage.derived.consume_queue import QueueEntry, QueueFileEntry
from broker_core.storage.derived.dispatch_checkpoint import (
    DISPATCH_CHECKPOINT_FILE,
    DispatchCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from broker_core.storage.derived.message_index import IndexEntry
from broker_core.storage.files.atomic_file import (
    read_file,
    replace_file,
    replace_file_keeping_backup,
)
from broker_core.storage.state.checkpoint import CHECKPOINT_FILE, load_page, save_page
from broker_core.storage.state.lock_and_abort_files import (
    ended_cleanly,
    mark_running,
    mark_stopped,
    take_lock,
)
from broker_core.storage.state.store_state import (
    FLAG_SYNC_FAILED,
    SLOT_SIZE,
    STATE_FILE,
    StoreState,
    StoreStateFile,
    decode_slot,
    encode_slot,
    new_state,
)
from tests.fakes.simulated_disk import SimulatedCrash, SimulatedDisk
from tests.store.small_store import new_disk

STATE = StoreState("00112233445566778899aabbccddeeff", 3, 4096, 1024, FLAG_SYNC_FAILED, "boot-1")


def at(position: int) -> StoreState:
    return STATE._replace(durable_position=position)


def loaded(disk: SimulatedDisk) -> StoreState | None:
    file = StoreStateFile.load(disk)
    if file is None:
        return None
    file.close()
    return file.state


class TestStoreState:
    def test_a_slot_is_one_sector(self) -> None:
        slot = encode_slot(STATE, 7)
        assert len(slot) == SLOT_SIZE
        assert slot[:8] == b"RMQS\0\0\0\1"
        assert decode_slot(slot) == (7, STATE)

    @given(st.integers(0, 8 * 100 - 1))
    def test_a_flipped_bit_makes_the_slot_invalid(self, bit: int) -> None:
        slot = bytearray(encode_slot(STATE, 7))
        slot[bit >> 3] ^= 1 << (bit & 7)
        assert decode_slot(bytes(slot)) is None
        assert decode_slot(b"") is decode_slot(bytes(SLOT_SIZE)) is None

    def test_new_stores_differ(self) -> None:
        first, second = new_state(0, "b"), new_state(0, "b")
        assert first.store_id != second.store_id
        assert (first.epoch, first.durable_position) == (1, 0)

    def test_the_newest_slot_counts(self) -> None:
        disk = new_disk()
        assert loaded(disk) is None
        file = StoreStateFile.create(disk, at(0))
        for position in range(1, 6):
            file.write(at(position), sync=False)
            assert loaded(disk) == at(position) == file.state
        file.close()

    def test_a_torn_write_leaves_the_state_before(self) -> None:
        disk = new_disk()
        file = StoreStateFile.create(disk, at(0))
        file.write(at(1), sync=True)
        file.write(at(2), sync=False)
        found = {loaded(disk.reboot(state)) for state in disk.crash_states()}
        assert found == {at(1), at(2)}
        file.write(at(3), sync=True)
        assert {loaded(disk.reboot(state)) for state in disk.crash_states()} == {at(3)}

    def test_a_damaged_slot_is_survived_and_two_are_not(self) -> None:
        disk = new_disk()
        file = StoreStateFile.create(disk, at(0))
        file.write(at(1), sync=True)
        file.close()
        newest = file._generation % 2
        disk.flip(STATE_FILE, 8 * (newest * SLOT_SIZE + 50))
        assert loaded(disk) == at(0)
        disk.flip(STATE_FILE, 8 * ((1 - newest) * SLOT_SIZE + 50))
        assert loaded(disk) is None
        StoreStateFile.create(disk, at(9)).close()
        assert loaded(disk) == at(9)

    def test_a_sync_without_news_is_free(self) -> None:
        disk = new_disk()
        file = StoreStateFile.create(disk, at(0))
        operations = disk.operation_count
        file.sync()
        assert disk.operation_count == operations
        file.write(at(1), sync=True)
        file.sync()
        assert disk.operation_count == operations + 2

    def test_a_newer_format_is_refused(self) -> None:
        import zlib

        disk = new_disk()
        head = b"RMQS" + (2).to_bytes(4, "big") + encode_slot(STATE, 1)[8:96]
        slot = (head + zlib.crc32(head).to_bytes(4, "big")).ljust(SLOT_SIZE, b"\0")
        disk.put(STATE_FILE, slot + bytes(SLOT_SIZE))
        with pytest.raises(StoreFormatUnsupported, match="2"):
            StoreStateFile.load(disk)


CHECKPOINT = DispatchCheckpoint(
    STATE.store_id, 5000, 1024, 1_700_000_000_000,
    (QueueEntry(b"T", 3, 1, 9, (QueueFileEntry(0, 100, 1), QueueFileEntry(100, 80, 2))),),
    (IndexEntry("20231114221320123", 0, 300, 7), IndexEntry("20231114221320124", 900, 60, None)),
    ((b"Old", 0, 17),),
)  # fmt: skip


class TestDispatchCheckpoint:
    def test_it_comes_back_as_it_was(self) -> None:
        disk = new_disk()
        assert load_checkpoint(disk) is None
        save_checkpoint(disk, CHECKPOINT)
        assert load_checkpoint(disk) == CHECKPOINT
        assert disk.files() == [DISPATCH_CHECKPOINT_FILE]

    @given(st.data())
    def test_damage_is_noticed(self, data: st.DataObject) -> None:
        good = encode_checkpoint(CHECKPOINT)
        bit = data.draw(st.integers(0, 8 * len(good) - 1))
        bad = bytearray(good)
        bad[bit >> 3] ^= 1 << (bit & 7)
        assert decode_checkpoint(bytes(bad)) is None
        assert decode_checkpoint(good[: bit >> 3]) is None

    def test_a_crash_leaves_the_old_or_the_new_one(self) -> None:
        disk = new_disk()
        save_checkpoint(disk, CHECKPOINT)
        newer = CHECKPOINT._replace(position=6000)
        seen = set()
        for number in range(1, 20):
            attempt = disk.reboot()
            attempt.crash_at(number)
            with contextlib.suppress(SimulatedCrash):
                save_checkpoint(attempt, newer)
            for state in attempt.crash_states():
                found = load_checkpoint(attempt.reboot(state))
                assert found in (CHECKPOINT, newer)
                seen.add(found.position)
        assert seen == {5000, 6000}


class TestCheckpointPage:
    def test_one_page_of_apache(self) -> None:
        disk = new_disk()
        assert load_page(disk) == CheckpointPage()
        page = CheckpointPage(1700000000123, 1700000000123, 0, 0, 4231)
        save_page(disk, page)
        data = disk.content(CHECKPOINT_FILE)
        assert len(data) == 4096
        assert data[:40].hex() == "0000018bcfe5687b" * 2 + "00" * 16 + "0000000000001087"
        assert not any(data[40:])
        assert load_page(disk) == page
        save_page(disk, page._replace(index_msg_timestamp=5))
        assert len(disk.content(CHECKPOINT_FILE)) == 4096

    def test_missing_short_and_long_pages(self) -> None:
        disk = new_disk()
        disk.put(CHECKPOINT_FILE, b"\1" * 10)
        assert load_page(disk) == CheckpointPage()
        disk.put(CHECKPOINT_FILE, bytes(9000))
        save_page(disk, CheckpointPage())
        assert len(disk.content(CHECKPOINT_FILE)) == 4096


class TestRunMarks:
    def test_abort_is_there_while_a_store_runs(self) -> None:
        disk = new_disk()
        assert ended_cleanly(disk)
        mark_running(disk, 4711)
        assert disk.content("abort") == b"4711"
        for state in disk.crash_states():
            assert not ended_cleanly(disk.reboot(state))
        mark_running(disk, 4712)
        mark_stopped(disk)
        for state in disk.crash_states():
            assert ended_cleanly(disk.reboot(state))
        mark_stopped(disk)

    def test_the_lock_has_one_owner(self) -> None:
        disk = new_disk()
        lock = take_lock(disk)
        assert disk.content("lock") == b"lock"
        with pytest.raises(StoreLocked):
            take_lock(disk)
        lock.close()
        take_lock(disk).close()


class TestReplacement:
    def contents(self, disk: SimulatedDisk, replace: object) -> list[set[str]]:
        """Per crash point, the files that the crash states show under the name and its backup."""
        outcomes = []
        for number in range(1, 30):
            attempt = disk.reboot()
            attempt.crash_at(number)
            with contextlib.suppress(SimulatedCrash):
                replace(attempt, "t", b"new")  # type: ignore[operator]
            for state in attempt.crash_states():
                rebooted = attempt.reboot(state)
                outcomes.append((read_file(rebooted, "t"), read_file(rebooted, "t.bak")))
        return outcomes

    def test_the_old_content_or_the_new_and_nothing_else(self) -> None:
        disk = new_disk()
        replace_file(disk, "t", b"old")
        outcomes = {main for main, _ in self.contents(disk, replace_file)}
        assert outcomes == {b"old", b"new"}

    def test_with_a_backup_one_of_the_two_files_is_always_whole(self) -> None:
        disk = new_disk()
        replace_file_keeping_backup(disk, "t", b"old")
        outcomes = self.contents(disk, replace_file_keeping_backup)
        assert all(b"old" in pair or b"new" in pair for pair in outcomes)
        assert outcomes[-1] == (b"new", b"old")

    def test_a_leftover_of_an_interrupted_attempt(self) -> None:
        disk = new_disk()
        disk.put("t.tmp", b"half")
        replace_file(disk, "t", b"new")
        assert disk.tree() == {"t": b"new"}
        assert read_file(disk, "missing") is None
