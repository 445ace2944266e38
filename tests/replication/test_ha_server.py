"""The replication port of a real master against hostile and faulty peers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.protocol_codes import BrokerRole, PutStatus
from broker_core.replication import ha_server
from broker_core.replication.ha_frames import encode_report
from broker_core.replication.handshake import MAGIC
from broker_core.store.writes.message import Message
from tests.replication.running_pair import (
    TIMEOUT_S,
    config_of,
    name_server,
    on_loop,
    pair,
    put,
    running,
    same_log,
    until,
)

SYNC = BrokerRole.SYNC_MASTER


@contextlib.asynccontextmanager
async def lone_master(root: Path, **settings: Any) -> AsyncIterator[Broker]:
    """A sync master without slaves."""
    async with running(config_of(root, SYNC, 0, "", **settings)) as master:
        yield master


async def connect(master: Broker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", master.config.ha_listen_port)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the master hangs up without a byte of the log."""
    try:
        left = await asyncio.wait_for(reader.read(), TIMEOUT_S)
    except ConnectionError:
        return True
    return b"secret" not in left


@on_loop
async def test_junk_is_closed_and_releases_nothing(tmp_path: Path) -> None:
    rng = random.Random(1)
    junk = [
        encode_report(1 << 62),
        encode_report(-1),
        encode_report((1 << 63) - 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        MAGIC + rng.randbytes(100),
        MAGIC + bytes(16) + b"\xff" * 40,
        MAGIC + bytes(16) + bytes(36) + b"\x00",
        *(rng.randbytes(64) for _ in range(20)),
    ]
    async with lone_master(tmp_path) as master:
        store = master.context.store
        waiting = asyncio.ensure_future(store.put(Message("T", b"secret")))
        for data in junk:
            reader, writer = await connect(master)
            writer.write(data)
            writer.write_eof()
            assert await is_closed(reader)
            writer.close()
        assert (await waiting).status is PutStatus.SLAVE_NOT_AVAILABLE
        await until(lambda: not master.role.status()["slaves"])
        assert store.offsets("T", 0)[1] == 0


@on_loop
async def test_an_acknowledgement_beyond_what_was_sent(tmp_path: Path) -> None:
    async with lone_master(tmp_path, slave_timeout_ms=300) as master:
        store = master.context.store
        reader, writer = await connect(master)
        writer.write(encode_report(0))
        await until(lambda: master.role.status()["slaves"])
        put = asyncio.ensure_future(store.put(Message("T", b"mine")))
        writer.write(encode_report(1 << 40))
        result = await put
        assert result.status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert await is_closed(reader)
        writer.close()
        await until(lambda: not master.role.status()["slaves"])
        assert store.offsets("T", 0)[1] == 0


@on_loop
async def test_a_silent_slave_times_out_and_is_dropped(tmp_path: Path) -> None:
    settings = {"slave_timeout_ms": 200, "ha_heartbeat_ms": 100, "ha_housekeeping_ms": 800}
    async with lone_master(tmp_path, **settings) as master:
        # On a machine that pauses it may be dropped before there is anything to wait for.
        for _ in range(10):
            if await silent_slave_status(master) is PutStatus.FLUSH_SLAVE_TIMEOUT:
                return
        raise AssertionError("no put has waited for the slave")


async def silent_slave_status(master: Broker) -> PutStatus:
    """The status of puts while a slave is silent, until it is dropped."""
    reader, writer = await connect(master)
    writer.write(encode_report(0))
    await until(lambda: master.role.status()["slaves"] or reader.at_eof())
    result = await master.context.store.put(Message("T", b"x"))
    await until(lambda: not master.role.status()["slaves"])
    writer.close()
    return result.status


@on_loop
async def test_a_slave_that_does_not_read_costs_no_more_than_its_buffer(tmp_path: Path) -> None:
    async with lone_master(tmp_path) as master:
        for number in range(12):
            put(master, 1000, size=1000, first=number * 1000)
        _reader, writer = await connect(master)
        writer.write(encode_report(1))
        await until(lambda: master.role.status()["slaves"])
        status = master.role.status()["slaves"][0]
        for _ in range(50):
            await asyncio.sleep(0)
        sent = master.role.status()["slaves"][0]["sent"]
        assert sent < 12_000_000
        assert status["position"] == 1
        writer.close()
        await until(lambda: not master.role.status()["slaves"])


@on_loop
async def test_too_many_unauthenticated_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ha_server, "_LOG_INTERVAL_S", 3_600.0)
    caplog.set_level(logging.INFO)
    async with lone_master(tmp_path) as master:
        peers = [await connect(master) for _ in range(40)]
        closed = 0
        for reader, _ in peers[16:]:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), TIMEOUT_S) == b""
            closed += 1
        assert closed == 24
        assert caplog.text.count("too many connections") == 1
        for _, writer in peers:
            writer.close()


@on_loop
async def test_unauthenticated_connections_of_one_host_do_not_block_slaves(tmp_path: Path) -> None:
    async with lone_master(tmp_path) as master:
        peers = [await connect(master) for _ in range(16)]
        port = master.config.ha_listen_port
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=("127.0.0.2", 0)
        )
        writer.write(encode_report(0))
        await until(lambda: master.role.status()["slaves"])
        # The oldest of the other host makes room.
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(peers[0][0].read(), TIMEOUT_S) == b""
        assert not any(other.at_eof() for other, _ in peers[1:])
        for _, each in [(reader, writer), *peers]:
            each.close()


@on_loop
async def test_unauthenticated_peers_do_not_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with lone_master(tmp_path) as master:
        for _ in range(100):
            reader, writer = await connect(master)
            writer.write(b"GET / HTTP/1.1")
            assert await is_closed(reader)
            writer.close()
    lines = [record for record in caplog.records if record.name == ha_server.__name__]
    assert 0 < len(lines) <= 70


@on_loop
async def test_two_slaves_with_one_id(tmp_path: Path) -> None:
    async with name_server() as address:
        master_config = config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, address)
        async with running(master_config) as master:
            put(master, 10)
            one = config_of(tmp_path / "one", BrokerRole.SLAVE, 1, address)
            two = config_of(tmp_path / "two", BrokerRole.SLAVE, 1, address)
            async with running(one) as first:
                await same_log(master, first)
                async with running(two) as second:
                    problem = lambda: second.role.status()["problem"]  # noqa: E731
                    await until(lambda: "brokerId=1" in problem())
                    assert len(master.role.status()["slaves"]) == 1
                    assert first.role.status()["is_copying"]


@on_loop
async def test_a_key_is_required(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("correct horse\n")
    key_file.chmod(0o600)
    keyed = {"ha_auth_key_file": str(key_file)}
    async with pair(tmp_path, of_master=keyed, of_slave={"ha_auth_key": "wrong"}) as (_, slave):
        await until(lambda: "haAuthKey" in slave.role.status()["problem"])
        assert slave.context.store.replication.log.end == 0
    async with pair(tmp_path, of_master=keyed, of_slave={"ha_auth_key": "correct horse"}) as (
        master,
        slave,
    ):
        put(master, 10)
        await same_log(master, slave)


@on_loop
async def test_fewer_slaves_than_a_put_needs(tmp_path: Path) -> None:
    needs = {"min_in_sync_replicas": 2}
    async with pair(tmp_path, SYNC, of_master=needs) as (master, slave):
        await until(lambda: master.role.status()["slaves"])
        stored = await master.context.store.put(Message("T", b"1"))
        assert stored.status is PutStatus.PUT_OK
        await slave.stop()
        await until(lambda: not master.role.status()["slaves"])
        end = master.context.store.log_range[1]
        refused = await master.context.store.put(Message("T", b"2"))
        assert refused.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert refused.remark == "in-sync replicas not enough"
        assert master.context.store.log_range[1] == end


@on_loop
async def test_a_master_that_waits_for_no_slave(tmp_path: Path) -> None:
    async with lone_master(tmp_path, in_sync_replicas=1) as master:
        result = await master.context.store.put(Message("T", b"1"))
        assert result.status is PutStatus.PUT_OK
        await until(lambda: master.context.store.offsets("T", 0)[1] == 1)
