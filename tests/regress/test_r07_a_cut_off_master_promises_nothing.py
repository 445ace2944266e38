"""R07 (RocketMQ #7017, #6662): after a partition two masters took messages; those of one were lost.

What the old master acknowledged while it was cut off was thrown away when it came back.
"""

from __future__ import annotations

import pytest

from broker_core.flush.durable_ack import StatusCallback
from broker_core.flush.replicated_ack import ReplicatedAcks
from broker_core.protocol_codes import PutStatus
from tests.regress.replica_nodes import Group


def _scenario() -> None:
    group = Group(3)
    a, b, c = group.nodes
    group.send(a, b"1", b"2")
    group.copy(a, b)
    group.copy(a, c)
    # The master is alone with its clients.
    group.cut_off(a)
    group.send(a, b"old 3", b"old 4")
    group.promote(b)
    group.copy(b, c)
    group.send(b, b"new 3")
    group.copy(b, c)
    group.send(a, b"old 5")
    for node in group.nodes:
        assert node.store is not None
    assert b"new 3" in group.acked
    # All nodes are connected again.
    suffix = a.log.end
    group.step_down(a)
    group.copy(b, a)
    group.copy(b, c)
    group.check(b)
    assert group.acked == [b"1", b"2", b"new 3"]
    assert group.refused == [b"old 3", b"old 4", b"old 5"]
    # Nothing of it is merged, and nothing is thrown away.
    (saved,) = a.saved_aside()
    assert all(body in saved for body in group.refused)
    assert suffix
    # It does not become the master again by being started.
    group.kill(a)
    a.start(group.masters())
    assert not a.is_master


def test_a_master_without_slaves_acknowledges_nothing() -> None:
    _scenario()


def test_the_scenario_finds_a_master_that_acknowledges_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def as_it_was(self: ReplicatedAcks, position: int, callback: StatusCallback) -> None:
        callback(PutStatus.PUT_OK)

    monkeypatch.setattr(ReplicatedAcks, "_when_copied", as_it_was)
    with pytest.raises(AssertionError, match="acknowledged and gone"):
        _scenario()
