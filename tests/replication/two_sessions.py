"""A master's and a slave's session that exchange bytes without sockets."""

from __future__ import annotations

from typing import Any

from broker_core.errors import ReplicationRefused
from broker_core.replication.follower_session import FollowerSession, FollowerSettings
from broker_core.replication.handshake import Identity
from broker_core.replication.leader_session import LeaderSession, LeaderSettings
from broker_core.replication.log_epochs import TERM, Epoch, EpochHistory
from tests.replication.memory_log import MemoryLog

MASTER = Identity("C", "B", 0, "m")


SLAVE = Identity("C", "B", 1, "s")


EPOCHS = EpochHistory((Epoch(TERM, "a", 0),), TERM)


def leader(log: MemoryLog, history: EpochHistory = EPOCHS, **settings: Any) -> LeaderSession:
    """Admits every slave."""
    return LeaderSession(
        log, MASTER, history, LeaderSettings(**settings), b"M" * 16, 0.0,
        lambda identity, seen: None,
    )  # fmt: skip


def follower(
    log: MemoryLog,
    history: EpochHistory = EPOCHS,
    identity: Identity = SLAVE,
    **settings: Any,
) -> FollowerSession:
    """Learns nothing."""
    return FollowerSession(
        log, identity, history, FollowerSettings(**settings), b"S" * 16, 0.0, lambda epochs: None
    )  # fmt: skip


def converse(master: LeaderSession, slave: FollowerSession, size: int = 1 << 20) -> None:
    """Exchange everything, `size` bytes at a time."""
    to_master, to_slave = slave.opening(0.0), b""
    for _ in range(100_000):
        if to_master:
            part, to_master = to_master[:size], to_master[size:]
            try:
                master.receive(part, 0.0)
            except ReplicationRefused:
                slave.receive(memoryview(master.reply), 0.0)
                raise
        to_slave += master.next_bytes(0.0)
        if to_slave:
            part, to_slave = to_slave[:size], to_slave[size:]
            to_master += slave.receive(memoryview(part), 0.0)
        if not to_master and not to_slave:
            return
    raise AssertionError("they talk for ever")
