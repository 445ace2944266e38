"""A real Apache broker registers with our name server, and Apache's tool finds what it needs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.wire.bodies.route_data import (
    TopicRoute,
    decode_topic_list,
    decode_topic_route,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.client import RemotingClient
from tests.interop.consumer_ground import until
from tests.interop.java_broker import SERVER_VERSIONS, JavaBroker
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.peer_releases import releases
from tests.patient_client import patient_client

pytestmark = pytest.mark.interop

REQUEST_TIMEOUT_MS = 60_000


class Cluster:
    """Our name server, Apache's broker, and a client of ours between them."""

    def __init__(self, server: NameServer, broker: JavaBroker, client: RemotingClient) -> None:
        self.server = server
        self.broker = broker
        self._client = client

    async def ask(self, code: int, **ext: str) -> RemotingCommand:
        command = RemotingCommand(code, ext)
        return await self._client.request(self.broker.name_server, command, REQUEST_TIMEOUT_MS)

    async def route(self, topic: str) -> TopicRoute | None:
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        assert answer.code in (0, 17)
        return decode_topic_route(answer.body) if answer.code == 0 else None

    def has(self, topic: str) -> bool:
        return self.server.table.route(topic) is not None


@asynccontextmanager
async def cluster(version: str, home: Path) -> AsyncIterator[Cluster]:
    server = NameServer()
    port = await server.start("127.0.0.1", 0)
    client = patient_client()
    broker = JavaBroker(version, home, f"127.0.0.1:{port}")
    try:
        await broker.start()
        await broker.until(lambda: server.table.route("TBW102") is not None)
        yield Cluster(server, broker, client)
    finally:
        await broker.kill()
        await client.close()
        await server.stop(100)


@pytest.mark.parametrize("version", releases(SERVER_VERSIONS))
def test_a_java_broker_registers_and_goes(
    run_async: Callable[..., Any], tmp_path: Path, version: str
) -> None:
    async def scenario() -> None:
        async with cluster(version, tmp_path) as found:
            await check_registration(found)
            await check_topic_created_by_the_tool(found)
            await check_permissions(found)
            await check_deletion(found)
            await found.broker.kill()
            await check_loss(found)

    try:
        run_async(scenario(), limit_s=400)
    except PeerUnavailable as missing:
        pytest.skip(f"RocketMQ broker {version}: {missing}")


async def check_registration(found: Cluster) -> None:
    route = await found.route("TBW102")
    assert route is not None
    [broker], [queues] = route.brokers, route.queues
    assert (broker.cluster, broker.broker_name) == ("DefaultCluster", "broker-a")
    assert broker.addresses == {0: found.broker.address}
    assert (queues.read_queue_count, queues.write_queue_count, queues.perm) == (8, 8, 7)
    info = json.loads((await found.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
    assert info["clusterAddrTable"] == {"DefaultCluster": ["broker-a"]}
    listed = await found.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert {"TBW102", "DefaultCluster", "broker-a"} <= set(decode_topic_list(listed.body).topics)


async def check_topic_created_by_the_tool(found: Cluster) -> None:
    # By cluster name: the tool asks our name server for its masters first.
    await found.broker.mqadmin(
        "updateTopic", "-c", "DefaultCluster", "-t", "Created", "-r", "5", "-w", "3"
    )
    await found.broker.until(lambda: found.has("Created"))
    route = await found.route("Created")
    assert route is not None
    assert (route.queues[0].read_queue_count, route.queues[0].write_queue_count) == (5, 3)
    assert found.has("TBW102"), "one changed topic does not replace the others"


async def check_permissions(found: Cluster) -> None:
    # A broker that registers in between has told its own permissions once more.
    for _ in range(5):
        wiped = await found.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
        assert int(wiped.ext["wipeTopicCount"]) > 2
        route = await found.route("Created")
        assert route is not None
        if route.queues[0].perm == 4:
            return
    raise AssertionError("the permission is not wiped")


async def check_deletion(found: Cluster) -> None:
    # The same for topics.
    for _ in range(5):
        await found.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="Created")
        if await found.route("Created") is None:
            return
    raise AssertionError("the topic is not deleted")


async def check_loss(found: Cluster) -> None:
    await until(lambda: not found.has("TBW102"), "the broker is dropped")
    assert await found.route("TBW102") is None
    info = json.loads((await found.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
    assert info == {"brokerAddrTable": {}, "clusterAddrTable": {}}
