"""The dispatch checkpoint."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

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
from broker_core.storage.state.store_state import (
    FLAG_SYNC_FAILED,
    StoreState,
)
from tests.fakes.simulated_disk import SimulatedCrash
from tests.store.small_store import new_disk

STATE = StoreState("00112233445566778899aabbccddeeff", 3, 4096, 1024, FLAG_SYNC_FAILED, "boot-1")


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
