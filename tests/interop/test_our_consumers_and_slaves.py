"""Reads go on at a slave when its master is gone, or when the broker says so. Real Apache pairs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.admin.admin import Admin
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.pull.result import PullStatus
from broker_core.client.push.consumer import PushConsumer
from broker_core.client.push.types import ConsumeContext
from broker_core.codec.wire.bodies.heartbeat_data import FROM_FIRST_OFFSET
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import RmqError
from broker_core.nameserver.name_server import NameServer
from tests.interop.clusters import run_or_skip
from tests.interop.consumer_ground import patient_config, until
from tests.interop.java_broker import SERVER_VERSIONS, JavaBroker
from tests.interop.peer_releases import releases

pytestmark = pytest.mark.interop

COUNT = 600


class Pair:
    """A master with a copy of everything at a slave, and a client."""

    def __init__(
        self, client: ClientInstance, master: JavaBroker, slave: JavaBroker, server: NameServer
    ) -> None:
        self.client = client
        self.master = master
        self.slave = slave
        self.server = server
        self.puller = PullConsumer(client, "READERS")

    def members(self) -> dict[int, str]:
        return dict(self.client.routes.brokers().get("broker-a", {}))


@asynccontextmanager
async def pair(version: str, home: Path) -> AsyncIterator[Pair]:
    server = NameServer()
    name_server = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    # The slave learns from the name server where its master hands out copies: at `brokerIP2`.
    properties = {
        "slaveReadEnable": "true",
        "mappedFileSizeCommitLog": str(16 << 20),
        "brokerIP2": "127.0.0.1",
    }
    master = JavaBroker(
        version, home / "master", name_server, {**properties, "brokerRole": "ASYNC_MASTER"}
    )
    as_slave = {"brokerRole": "SLAVE", "brokerId": "1"}
    slave = JavaBroker(version, home / "slave", name_server, {**properties, **as_slave})
    client = ClientInstance(patient_config(name_server, route_poll_interval_ms=500))
    try:
        await master.start()
        await master.until(lambda: server.table.route("TBW102") is not None)
        await slave.start()
        await slave.until(lambda: len(_addresses(server)) == 2)
        await client.start()
        yield Pair(client, master, slave, server)
    finally:
        await client.stop()
        await slave.kill()
        await master.kill()
        await server.stop(100)


def _addresses(server: NameServer) -> dict[int, str]:
    route = server.table.route("TBW102")
    return dict(route.brokers[0].addresses) if route is not None else {}


async def filled(found: Pair) -> MessageQueue:
    """One queue with messages, all of them copied to the slave."""
    await Admin(found.client).create_topic("Copied", queue_count=1)
    [queue] = await found.puller.queues("Copied")
    async with Producer(found.client, "PRODUCERS") as producer:
        for first in range(0, COUNT, 200):
            batch = [OutgoingMessage("Copied", b"m%d" % n) for n in range(first, first + 200)]
            await producer.send_batch(batch, queue=queue)
    await until(lambda: found.members().keys() == {0, 1}, "both in the route")
    # Asked directly: the slave tells how much it has.
    copied = ClientInstance(
        ClientConfig(
            found.client.config.name_servers,
            address_rewrite={found.master.address: found.slave.address},
        )
    )
    async with copied:
        reader = PullConsumer(copied, "COPIES")

        async def is_copied() -> bool:
            try:
                return (await reader.pull(queue, COUNT - 1)).status is PullStatus.FOUND
            except RmqError:
                return False

        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for _ in range(2_400):
            if await is_copied():
                return queue
            await asyncio.wait((never,), timeout=0.05)
    raise AssertionError("the slave has not copied the messages")


@pytest.mark.parametrize("version", releases(SERVER_VERSIONS))
def test_reads_go_on_without_the_master(
    run_async: Callable[..., Any], tmp_path: Path, version: str
) -> None:
    async def scenario() -> None:
        async with pair(version, tmp_path) as found:
            queue = await filled(found)
            seen: list[bytes] = []

            async def listen(messages: list[ReceivedMessage], context: ConsumeContext) -> None:
                seen.extend(message.body for message in messages)

            stream = found.puller.stream(queue, 0, COUNT, requests_max=1, buffer_size_max=1)
            async with stream:
                offsets = [(await anext(stream)).until_offset]
                await found.master.kill()
                async for run in stream:
                    assert run.first_offset == offsets[-1]
                    offsets.append(run.until_offset)
            assert offsets[-1] == COUNT
            result = await found.puller.pull(queue, 5, max_count=1)
            assert [m.body for m in result.messages] == [b"m5"]
            assert not result.from_master
            consumer = PushConsumer(
                found.client, "LATE", listen, from_where=FROM_FIRST_OFFSET, suspend_ms=1_000
            )
            consumer.subscribe("Copied")
            await consumer.start()
            try:
                await until(lambda: len(set(seen)) == COUNT, "all from the slave", 90)
            finally:
                await consumer.stop()

    run_or_skip(run_async, scenario(), limit_s=300)
