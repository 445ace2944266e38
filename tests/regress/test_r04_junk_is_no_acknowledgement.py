"""R04 (RocketMQ #1155, #3015): any bytes on the replication port counted as an acknowledgement.

After eight bytes of junk every later send was answered as if a slave had it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.protocol_codes import BrokerRole, PutStatus
from broker_core.replication.ha_frames import ReportParser, encode_report
from broker_core.replication.leader_session import LeaderSession
from broker_core.replication.replica_set import Replica, ReplicaSet
from broker_core.store.writes.message import Message
from tests.replication.running_pair import config_of, name_server, running, until

Run = Callable[..., Any]


async def _junk(master: Broker, data: bytes) -> None:
    """An unknown peer sends bytes and stays connected; the master closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", master.config.ha_listen_port)
    # As an Apache slave begins, so that the master sends something before the lie.
    writer.write(encode_report(0))
    await until(lambda: master.role.status()["slaves"])
    writer.write(data)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(reader.read(), 2)
    result = await master.context.store.put(Message("T", b"not safe"))
    writer.close()
    await until(lambda: not master.role.status()["slaves"])
    assert result.status is not PutStatus.PUT_OK, "no slave has this message"


async def _scenario(root: Path) -> None:
    rng = random.Random(4)
    async with name_server() as names:
        # Long enough for a slave on a busy machine; this is also the limit of a wait for a lying
        # peer.
        of_master = config_of(root / "m", BrokerRole.SYNC_MASTER, 0, names, slave_timeout_ms=10_000)
        of_slave = config_of(root / "s", BrokerRole.SLAVE, 1, names)
        async with running(of_slave) as slave:
            async with running(of_master) as master:
                await until(lambda: master.role.status()["slaves"])
                for number in range(5):
                    result = await master.context.store.put(Message("T", b"%d" % number))
                    assert result.status is PutStatus.PUT_OK
                await slave.stop()
                await until(lambda: not master.role.status()["slaves"])
                for data in (encode_report(1 << 62), b"\x7f" * 8, *(rng.randbytes(24),) * 3):
                    await _junk(master, data)
            await slave.start()
            # The master and its disk are gone.
            await slave.promote()
            assert slave.context.store.offsets("T", 0)[1] >= 5


def test_junk_releases_nothing(tmp_path: Path, run_async: Run) -> None:
    run_async(_scenario(tmp_path), limit_s=300)


def test_the_scenario_finds_a_master_that_accepts_any_report(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_it_was(self: LeaderSession, data: bytes) -> bool:
        for report in ReportParser().receive(data):
            self.position = max(self.position, report)
        return True

    def reached(self: ReplicaSet, replica: Replica, position: int) -> None:
        replica.position = position
        self.confirmed.advance(position)

    monkeypatch.setattr(LeaderSession, "_take_reports", as_it_was)
    monkeypatch.setattr(ReplicaSet, "reached", reached)
    with pytest.raises(AssertionError, match="no slave has this message"):
        run_async(_scenario(tmp_path), limit_s=300)
