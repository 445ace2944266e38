"""R09 (RocketMQ #678): the checkpoint vouched for the queues when only the index was flushed.

A checkpoint is cut before each of its operations, with the pages of queues, index and checkpoint
written in every order. Recovery must start at or before the first entry that is missing.
"""

from __future__ import annotations

import pytest

from tests.crash.planted_bugs import checkpoint_before_queues
from tests.crash.store_dump import dump_store
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

COUNT = 14


def _judge(after: SimulatedDisk) -> None:
    store = open_store(after, small_config())
    dump = dump_store(store, after)
    assert dump.rebuilt == 0, "the checkpoint vouched for entries that were not there"
    assert numbers_in(store) == list(range(COUNT))
    expected = tuple((h, r.position) for r in dump.records for h in r.index_hashes)
    assert dump.index == expected


def _scenario() -> None:
    disk = new_disk()
    store = open_store(disk, small_config())
    for number in range(COUNT):
        assert store.append(numbered(number)).ok
    cuts = 0

    def power_fails(_: int) -> None:
        nonlocal cuts
        for after in reboots(disk, 24):
            cuts += 1
            _judge(after)

    disk.on_operation = power_fails
    assert isinstance(disk.clock, ManualClock)
    disk.clock.advance(11_000)
    store.scheduler.tick()
    assert cuts > 100


def test_the_checkpoint_never_runs_ahead_of_the_queues() -> None:
    _scenario()


def test_the_scenario_finds_a_checkpoint_that_does() -> None:
    with checkpoint_before_queues(), pytest.raises(AssertionError, match="vouched"):
        _scenario()
