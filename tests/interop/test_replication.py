"""Apache's slave behind our master, our slave behind Apache's master: bytes and readers agree."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import BrokerRole, PutStatus, RequestCode
from broker_core.store.writes.message import Message
from tests.interop.clusters import run_or_skip
from tests.interop.consumer_ground import patient_config
from tests.interop.java_broker import JavaBroker
from tests.patient_client import patient_client
from tests.replication.running_pair import config_of, log_bytes, running, until
from tests.replication.test_promotion import bodies

pytestmark = pytest.mark.interop

FILE_SIZE = 1 << 20
VERSIONS = ("5.5.0", "4.9.7") if os.environ.get("RMQ_INTEROP_ALL") else ("5.5.0",)
JAVA_S = 120.0


@asynccontextmanager
async def name_server() -> AsyncIterator[tuple[NameServer, str]]:
    """Ours, to look into."""
    server = NameServer()
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.stop(100)


def java_log(home: Path, start: int, end: int) -> bytes:
    """The bytes `[start, end)` of a Java broker's log; short when it has not got them."""
    pieces = []
    while start < end:
        base = start - start % FILE_SIZE
        path = home / "store" / "commitlog" / f"{base:020d}"
        if not path.exists():
            break
        with path.open("rb") as file:
            file.seek(start - base)
            pieces.append(file.read(min(end, base + FILE_SIZE) - start))
        start = base + FILE_SIZE
    return b"".join(pieces)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_apache_slave_follows_our_master(
    version: str, tmp_path: Path, run_async: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        async with name_server() as (_, address):
            config = config_of(
                tmp_path / "ours", BrokerRole.SYNC_MASTER, 0, address, slave_timeout_ms=60_000
            )
            async with running(config) as master:
                await feed_apache_slave(version, master, address, tmp_path / "theirs")

    run_or_skip(run_async, scenario())


async def feed_apache_slave(version: str, master: Broker, address: str, home: Path) -> None:
    """Two files before it comes, more while it is there, sync double write."""
    master.context.topics.put(TopicConfig("T", 1, 1))
    store = master.context.store
    for number in range(1500):
        assert store.append(Message("T", b"%d" % number + b"." * 1000)).ok
    properties = {"brokerRole": "SLAVE", "brokerId": "1"}
    slave = JavaBroker(version, home, address, properties)
    await slave.start()
    try:
        status = master.role.status
        await slave.until(lambda: bool(status()["slaves"]), JAVA_S)
        for number in range(1500, 1600):
            result = await store.put(Message("T", b"%d" % number))
            assert result.status is PutStatus.PUT_OK
        for number in range(1600, 3000):
            assert store.append(Message("T", b"%d" % number + b"." * 1000)).ok
        log = store.replication.log
        # Apache's slaves begin with the last file of the moment.
        start = FILE_SIZE
        await slave.until(
            lambda: java_log(home, start, log.end) == log_bytes(master, start), JAVA_S
        )
        # None is there for a moment when it connects again.
        await slave.until(
            lambda: [(s["lag_bytes"], s["broker_id"]) for s in status()["slaves"]] == [(0, None)],
            JAVA_S,
        )
        await read_from_apache_slave(master, slave)
    finally:
        await slave.kill()


async def read_from_apache_slave(master: Broker, slave: JavaBroker) -> None:
    """Its queue and its records are ours, as far back as it has them."""
    client = patient_client()

    async def ask(code: int, **ext: int) -> RemotingCommand:
        fields = {"topic": "T", "queueId": "0", **{key: str(n) for key, n in ext.items()}}
        return await client.request(slave.address, RemotingCommand(code, fields), 60_000)

    async def offset(code: int) -> int:
        return int((await ask(code)).ext["offset"])

    try:
        await until_async(lambda: offset(RequestCode.GET_MAX_OFFSET), 3000)
        first = await offset(RequestCode.GET_MIN_OFFSET)
        assert 0 < first < 1500
        for number in (first, 1550, 2999):
            ((position, size, _),) = master.context.store.units("T", 0, number, 1)
            found = await ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=position)
            assert found.code == 0
            assert len(found.body) == size
            assert b"%d" % number in bytes(found.body)
    finally:
        await client.close()


async def until_async(ask: Callable[[], Awaitable[int]], wanted: int) -> None:
    """Poll an answer."""
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for _ in range(2_400):
        if await ask() == wanted:
            return
        await asyncio.wait((never,), timeout=0.05)
    raise AssertionError(f"not {wanted} in time")


@pytest.mark.parametrize("version", VERSIONS)
def test_our_slave_follows_an_apache_master(
    version: str, tmp_path: Path, run_async: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        async with name_server() as (server, address):
            home = tmp_path / "theirs"
            properties = {"brokerRole": "ASYNC_MASTER", "brokerIP2": "127.0.0.1"}
            master = JavaBroker(version, home, address, properties)
            await master.start()
            try:
                await master.until(lambda: server.table.route("TBW102") is not None)
                config = config_of(tmp_path / "ours", BrokerRole.SLAVE, 1, address)
                async with running(config) as slave:
                    await follow_apache_master(master, slave, address, home)
            finally:
                await master.kill()

    run_or_skip(run_async, scenario())


async def follow_apache_master(master: JavaBroker, slave: Broker, address: str, home: Path) -> None:
    """Everything from the first byte, because the slave is there from the beginning."""
    sent = []
    async with (
        ClientInstance(patient_config(address)) as client,
        Producer(client, "P") as producer,
    ):
        for number in range(400):
            body = b"%d" % number + b"." * 4000
            await producer.send(OutgoingMessage("Copied", body))
            sent.append(b"%d" % number)
    log = slave.context.store.replication.log
    await until(lambda: log.end >= 400 * 4000, JAVA_S, told=slave.role.status)
    assert java_log(home, 0, log.end) == log_bytes(slave)
    assert slave.role.status()["is_copying"]
    queues = {queue for topic, queue in slave.context.store.queues() if topic == "Copied"}

    def readable() -> list[bytes]:
        return sorted(body for queue in queues for body in bodies(slave, queue, "Copied"))

    await until(lambda: readable() == sorted(sent), JAVA_S)
