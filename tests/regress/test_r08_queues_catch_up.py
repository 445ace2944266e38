"""R08 (RocketMQ #467, #1434, #7355): after an abnormal stop some messages of the log never got into
the consume queue, above all at the end of a file.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from broker_core.dispatch.log_dispatcher import LogDispatcher
from tests.fakes.simulated_disk import SimulatedDisk
from tests.regress.small_disk_store import (
    ASYNC,
    TOPIC,
    new_disk,
    numbered,
    numbers_in,
    open_store,
    small_config,
)

COUNT = 24


def _written(count: int) -> SimulatedDisk:
    """`count` messages in the log; the dispatch checkpoint knows none of them."""
    disk = new_disk()
    store = open_store(disk, small_config(**ASYNC))
    for number in range(count):
        assert store.append(numbered(number)).ok
    return disk


def _complete(disk: SimulatedDisk, count: int) -> None:
    store = open_store(disk, small_config(**ASYNC))
    assert numbers_in(store) == list(range(count))
    for number in range(count):
        assert len(store.query(TOPIC, f"key{number}")) == 1


def _scenario() -> None:
    ends = set()
    for count in range(1, COUNT):
        disk = _written(count)
        ends.add(len(disk.list("commitlog")))
        _complete(disk.reboot(), count)
        _complete(disk.kill(), count)
    assert len(ends) > 2, "the log must have rolled"


def test_every_record_of_the_log_is_in_its_queue() -> None:
    _scenario()


def test_the_scenario_finds_a_recovery_that_does_not_dispatch() -> None:
    original = LogDispatcher.dispatch

    def not_while_opening(self: LogDispatcher, limit: int, *others: Any) -> int:
        return original(self, limit, *others) if self._listeners else 0

    with (
        mock.patch.object(LogDispatcher, "dispatch", not_while_opening),
        mock.patch.object(LogDispatcher, "dispatch_kept"),
        pytest.raises(AssertionError),
    ):
        _scenario()
