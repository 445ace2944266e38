"""R14 (Kafka's KIP-101, KAFKA-6361): after fast changes of the leader a watermark cut the logs.

A follower that had not heard yet how much was confirmed cut what was acknowledged; after a second
change two members had different records at one offset, for ever. Epochs in the log decide instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from broker_core.errors import RmqError
from broker_core.replication import follower_session, leader_session
from broker_core.store.replication.replica_log import ReplicaLog
from tests.regress.replica_nodes import Group
from tests.replication.simulated_node import Node


def _switch(group: Group, old: Node, new: Node, bodies: tuple[bytes, ...]) -> None:
    """The leader is killed with messages that no other node has; the other one leads at once."""
    group.send(old, b"lost with " + bodies[0])
    group.kill(old)
    group.promote(new)
    # Not acknowledged, and longer than what the old one has there.
    group.send(new, b"early before " + bodies[0])
    old.start(group.masters())
    assert not old.is_master
    group.copy(new, old)
    group.send(new, *bodies)


def _scenario() -> None:
    group = Group(2)
    a, b = group.nodes
    group.send(a, b"1", b"2")
    group.copy(a, b)
    assert group.acked == [b"1", b"2"]
    # The follower starts again before it gets a message; then it has to lead.
    group.send(a, b"3")
    group.copy(a, b)
    group.kill(b)
    b.start(group.masters())
    _switch(group, a, b, (b"4", b"5"))
    group.copy(b, a)
    # Back, and once more, each time with an end that only the dead leader has.
    _switch(group, b, a, (b"6", b"7", b"8"))
    group.copy(a, b)
    _switch(group, a, b, (b"9",))
    # Before the other one has caught up, the leader is killed and comes back itself.
    group.kill(b)
    b.start(group.masters())
    group.copy(b, a)
    group.check(b)
    assert set(group.acked) >= {b"%d" % number for number in range(1, 9)}
    numbers = [body for body in b.bodies() if body.isdigit()]
    assert numbers == [b"%d" % number for number in range(1, 10)]
    assert not [body for body in b.bodies() if body.startswith(b"lost")]


@contextlib.contextmanager
def _without_epochs() -> Iterator[None]:
    """Logs are taken for the same as far as both go."""

    def shorter(ours: Any, our_end: int, theirs: Any, their_end: int) -> int:
        return min(our_end, their_end)

    with (
        mock.patch.object(follower_session, "agreed_end", shorter),
        mock.patch.object(leader_session, "agreed_end", shorter),
        mock.patch.object(ReplicaLog, "checksum", lambda self, start, end: 0),
    ):
        yield


def test_three_fast_switches() -> None:
    _scenario()


def test_the_scenario_finds_logs_without_epochs() -> None:
    with _without_epochs(), pytest.raises((AssertionError, RmqError)):
        _scenario()
