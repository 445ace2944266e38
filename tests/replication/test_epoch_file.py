"""The epochs of a store on disk."""

from __future__ import annotations

import pytest

from broker_core.errors import StoreUnusable
from broker_core.replication.epoch_file import (
    EPOCH_FILE,
    decode_history,
    encode_history,
    load_history,
    save_history,
)
from broker_core.replication.log_epochs import TERM, Epoch, EpochHistory, LastRole
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk

A, B, C = Epoch(TERM, "a", 0), Epoch(TERM + 1, "b", 500), Epoch(2 * TERM, "c", 700)


def test_the_file(tmp_path: object) -> None:
    history = EpochHistory((A, B), TERM + 1, LastRole.STEPPED_DOWN)
    assert decode_history(encode_history(history)) == history
    disk = SimulatedDisk(clock=ManualClock())
    assert load_history(disk) == EpochHistory()
    save_history(disk, history)
    assert load_history(disk) == history
    for bit in range(8 * len(disk.content(EPOCH_FILE))):
        disk.flip(EPOCH_FILE, bit)
        with pytest.raises(StoreUnusable):
            load_history(disk)
        disk.flip(EPOCH_FILE, bit)
