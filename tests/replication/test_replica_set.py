"""When a master feeds its slave: at once for a single producer, otherwise once in a turn."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from broker_core.replication.ha_frames import encode_header, encode_report
from broker_core.replication.ha_server import HaServer, _SlaveConnection
from broker_core.replication.handshake import Identity
from broker_core.replication.leader_session import LeaderSettings
from broker_core.replication.log_epochs import TERM, Epoch, EpochHistory
from broker_core.replication.replica_set import ReplicaSet, ReplicaSettings
from tests.fakes.manual_clock import ManualClock
from tests.replication.memory_log import MemoryLog
from tests.replication.running_pair import on_loop


class Line:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def take(self) -> list[bytes]:
        written, self.written = self.written, []
        return written


class Fed:
    """A master whose log grows by a byte at a time, and an Apache slave."""

    def __init__(self, in_sync_replicas: int) -> None:
        self.log = MemoryLog(b"0123456789")
        self.replicas = ReplicaSet(ReplicaSettings(in_sync_replicas), lambda: self.log.end)
        history = EpochHistory((Epoch(TERM, "a", 0),), TERM)
        identity = Identity("C", "B", 0, "m")
        self.server = HaServer(
            self.log, identity, history, self.replicas, LeaderSettings(), ManualClock()
        )
        self.line = Line()
        self.connection = _SlaveConnection(self.server)
        self.connection.connection_made(cast(Any, self.line))
        self.report()

    def append(self) -> bytes:
        """One byte more; the frame that it would have alone."""
        self.log.append(b"x")
        self.server.wake()
        return encode_header(self.log.end - 1, 1) + b"x"

    def report(self) -> None:
        self.connection.data_received(encode_report(self.log.end))


@on_loop
async def test_a_single_append_is_sent_in_its_own_turn() -> None:
    fed = Fed(2)
    # How many send together is known after a turn.
    fed.append()
    assert fed.line.take() == []
    await asyncio.sleep(0)
    fed.line.take()
    fed.report()
    for _ in range(3):
        frame = fed.append()
        assert fed.line.take() == [frame]
        await asyncio.sleep(0)
        assert fed.line.take() == []
        fed.report()
        assert fed.replicas.confirmed.position == fed.log.end


@on_loop
async def test_appends_of_one_turn_share_a_frame() -> None:
    fed = Fed(2)
    for _ in range(3):
        start = fed.log.end
        for _ in range(3):
            fed.append()
        assert fed.line.take() == []
        await asyncio.sleep(0)
        assert fed.line.take() == [encode_header(start, 3) + b"xxx"]
        fed.report()


@on_loop
async def test_while_a_report_is_awaited_frames_wait_for_their_turn() -> None:
    fed = Fed(2)
    fed.append()
    await asyncio.sleep(0)
    fed.line.take()
    frame = fed.append()
    assert fed.line.take() == []
    await asyncio.sleep(0)
    assert fed.line.take() == [frame]


@on_loop
async def test_puts_do_not_wait_for_the_slaves_of_an_async_master() -> None:
    fed = Fed(1)
    for _ in range(3):
        frame = fed.append()
        # Producers are answered first.
        assert fed.line.take() == []
        await asyncio.sleep(0)
        assert fed.line.take() == [frame]
        fed.report()
