"""Small files of a store: state slots, dispatch checkpoint, checkpoint page, marks, replacement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import StoreFormatUnsupported
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
from tests.fakes.simulated_disk import SimulatedDisk
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
