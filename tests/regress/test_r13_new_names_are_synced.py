"""R13 (KAFKA-3968): a new segment was synced, its directory was not, and the file was gone after a
power cut, with everything that had been acknowledged in it.
"""

from __future__ import annotations

import pytest

from broker_core.errors import RmqError
from tests.crash.planted_bugs import ForgetfulDisk
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk
from tests.regress.small_disk_store import (
    new_disk,
    numbered,
    numbers_in,
    open_store,
    reboots,
    small_config,
)

COUNT = 30


def _scenario(disk: SimulatedDisk) -> None:
    store = open_store(disk, small_config())
    files = 0
    for number in range(COUNT):
        assert store.append(numbered(number)).ok
        now = len(disk.list("commitlog")) + len(disk.list("index"))
        if now == files and number % 5:
            continue
        # A file has just been added: everything acknowledged so far is in some file.
        files = now
        for after in reboots(disk, 40):
            assert numbers_in(open_store(after, small_config())) == list(range(number + 1))
    assert files > 4


def test_a_new_file_is_there_after_a_power_cut() -> None:
    _scenario(new_disk())


def test_the_scenario_finds_a_store_that_does_not_sync_directories() -> None:
    disk = ForgetfulDisk(clock=ManualClock())
    with pytest.raises((AssertionError, RmqError)):
        _scenario(disk)
