"""R05 (RocketMQ #10666): a slave's log was cut in memory only; the old end came back after a crash.

It was valid on the disk, so the next recovery took it for part of the log.
"""

from __future__ import annotations

import random

import pytest

from broker_core.store.replication import log_cut
from tests.fakes.simulated_disk import SimulatedCrash
from tests.regress.replica_nodes import Group
from tests.store.replication.test_log_cut import BODIES, KEPT, cut, filled, opened
from tests.store.small_store import bodies


def _scenario() -> None:
    """Cut, lose the power at once, start again."""
    source, start, end, numbering = filled()
    disk = source.copy()
    cut(disk, start, end, numbering)
    for state in disk.crash_states(limit=8, rng=random.Random(5)):
        store = opened(disk.copy().reboot(state))
        assert store.log_range[1] == start, "the end that was cut is there again"
        assert bodies(store, "T") == BODIES[:KEPT]
        store.close()


def _diverged_group() -> None:
    """An old master that follows the new one, with the power cut at every operation of its cut."""
    for number in range(1, 200, 7):
        group = Group(2)
        a, b = group.nodes
        group.send(a, b"1", b"2")
        group.copy(a, b)
        group.cut_off(a)
        group.send(a, b"old 3", b"old 4", b"old 5")
        group.kill(a)
        group.promote(b)
        group.send(b, b"new 3")
        a.start(group.masters())
        a.disk.crash_at(a.disk.operation_count + number)
        try:
            group.copy(b, a)
        except SimulatedCrash:
            group.kill(a, power=True)
            a.start(group.masters())
            group.copy(b, a)
        group.copy(b, a)
        assert not [body for body in a.bodies() if body.startswith(b"old")], "a ghost"
        group.check(b)


def test_what_was_cut_does_not_come_back() -> None:
    _scenario()


def test_an_old_master_follows_through_power_cuts() -> None:
    _diverged_group()


def test_the_scenario_finds_a_cut_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_cut, "cut_log", lambda file_system, segments, position: segments)
    with pytest.raises(AssertionError, match="there again"):
        _scenario()
