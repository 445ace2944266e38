"""The log of a store as replication reads it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.protocol_codes import BrokerRole
from broker_core.store.replication.replica_log import ReplicaLog
from tests.replication.running_pair import (
    TIMEOUT_S,
    config_of,
    make_topic,
    name_server,
    on_loop,
    put,
    running,
    same_log,
    until,
)

FAR = 16 << 20


BIG_FILES = {"store": {"commit_log_file_size": 8 << 20}}


async def filled(master: Broker) -> None:
    """Twice as much as is taken to be in memory."""
    make_topic(master)
    while master.context.store.log_range[1] < 2 * FAR:
        put(master, 20, size=100_000)
        await asyncio.sleep(0)


@on_loop
async def test_producers_do_not_wait_for_a_slow_disk(tmp_path: Path) -> None:
    may_read, asked = threading.Event(), threading.Event()
    right = ReplicaLog.read_later

    def slow(self: ReplicaLog, position: int, size: int) -> Any:
        found = right(self, position, size)
        if found is None:
            return None
        run, done = found

        def wait() -> bytes:
            asked.set()
            assert may_read.wait(TIMEOUT_S)
            return run()

        return wait, done

    async with name_server() as names:
        of_master = config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, names, **BIG_FILES)
        of_slave = config_of(tmp_path / "s", BrokerRole.SLAVE, 1, names, **BIG_FILES)
        async with running(of_master) as master:
            await filled(master)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ReplicaLog, "read_later", slow)
                async with running(of_slave) as slave:
                    await until(asked.is_set)
                    # The disk hangs; the loop does not.
                    before = master.context.store.log_range[1]
                    put(master, 50)
                    await until(lambda: master.context.store.dispatched_position > before)
                    (report,) = master.role.status()["slaves"]
                    assert report["lag_bytes"] > FAR
                    stored = master.context.store.replication.message_count
                    assert report["lag_messages"] == pytest.approx(stored, rel=0.05)
                    may_read.set()
                    await same_log(master, slave)
                    await until(lambda: master.role.status()["slaves"][0]["lag_messages"] == 0)


@on_loop
async def test_a_master_stops_while_a_thread_reads(tmp_path: Path) -> None:
    right, asked = ReplicaLog.read_later, threading.Event()
    may_read = threading.Event()

    def slow(self: ReplicaLog, position: int, size: int) -> Any:
        found = right(self, position, size)
        if found is None:
            return None
        run, done = found
        return (lambda: (asked.set(), may_read.wait(TIMEOUT_S), run())[2]), done

    async with name_server() as names:
        of_master = config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, names, **BIG_FILES)
        of_slave = config_of(tmp_path / "s", BrokerRole.SLAVE, 1, names, **BIG_FILES)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReplicaLog, "read_later", slow)
            async with running(of_slave) as slave:
                async with running(of_master) as master:
                    await filled(master)
                    await until(asked.is_set)
                    asyncio.get_running_loop().call_later(0.1, may_read.set)
                async with running(of_master) as master:
                    await same_log(master, slave)
