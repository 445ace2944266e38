"""Name servers that fail or return wrong routes, and the client's cache meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.connection.name_server_client import NameServerClient
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.route_data import (
    BrokerData,
    QueueData,
    TopicRoute,
    encode_topic_route,
)
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    TopicNotExist,
    UnexpectedAnswer,
)
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from tests.client.scripted_brokers import scripted_cluster
from tests.fakes.manual_clock import ManualClock
from tests.remoting.peers import client, serving, until

ROUTE = TopicRoute((BrokerData("c", "a", {0: "h:1", 1: "h:2"}),), (QueueData("a", 2, 2, 6),))


def answering(code: int, body: bytes = b"", remark: str = "") -> Handler:
    def handle(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(code, remark, body=body)

    return handle


@contextlib.asynccontextmanager
async def asking(*handlers: Handler, first: int = 0) -> AsyncIterator[NameServerClient]:
    """A client of name servers with these handlers, which asks number `first` first."""
    async with contextlib.AsyncExitStack() as stack:
        addresses = [(await stack.enter_async_context(serving(one)))[1] for one in handlers]
        remoting = await stack.enter_async_context(client())
        found = NameServerClient(remoting, addresses, 60_000)
        found._current = first
        yield found


def test_the_next_server_answers_for_one_that_cannot(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        good = answering(0, encode_topic_route(ROUTE))
        for bad in (
            answering(1, remark="name server not ready"),
            answering(14),
            answering(17),
            answering(0, b"no JSON"),
        ):
            async with asking(bad, good) as servers:
                assert await servers.route("T") == ROUTE
                assert servers._current == 1, "it stays with the one that answered"

    run_async(scenario())


def _route_body(**changes: Any) -> bytes:
    queue = {"brokerName": "a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    broker = {"brokerAddrs": {"0": "h:1"}, "brokerName": "a", "cluster": "c"}
    broker.update(changes.pop("broker", {}))
    queue.update(changes.pop("queue", {}))
    return emit_json({"brokerDatas": [broker], "queueDatas": [queue], **changes})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{" * 100_000,
        b'{"queueDatas":[' + b"[" * 5_000,
        _route_body(queue={"writeQueueNums": 2_000_000_000}),
        _route_body(queue={"readQueueNums": 65_537}),
        _route_body(queue={"writeQueueNums": -1}),
        _route_body(orderTopicConf="a:70000"),
        _route_body(broker={"brokerAddrs": {"0": "no port"}}),
        _route_body(broker={"brokerAddrs": {"0": "h:99999"}}),
        _route_body(broker={"brokerAddrs": {"x": "h:1"}}),
        _route_body(broker={"brokerAddrs": ["h:1"]}),
    ],
)
def test_hostile_routes_are_refused(run_async: Callable[..., Any], body: bytes) -> None:
    async def scenario() -> None:
        async with asking(answering(0, body)) as servers:
            with pytest.raises((UnexpectedAnswer, ConnectionLost)):
                await servers.route("T")

    run_async(scenario())


def test_concurrent_look_ups_share_one_request(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        asked = []

        def count(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            asked.append(command)
            return command.reply(0, body=encode_topic_route(ROUTE))

        async with (
            serving(count) as (_, address),
            ClientInstance(ClientConfig((address,))) as found,
        ):
            routes = await asyncio.gather(*(found.routes.route("T") for _ in range(100)))
            assert routes == [ROUTE] * 100
            assert len(asked) == 1
            await found.routes.route("T")
            assert len(asked) == 1
            await found.routes.route("T", refresh=True)
            assert len(asked) == 2

    run_async(scenario())


def test_a_topic_without_route_takes_the_template(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            scripted_cluster(topics=(TopicConfig("TBW102", 8, 8, 7),)) as cluster,
            ClientInstance(cluster.config()) as found,
        ):
            queues = await found.routes.publish_queues("New")
            assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
            assert found.routes.is_template("New")
            with pytest.raises(TopicNotExist):
                await found.routes.subscribe_queues("New")
            # Once it exists, its own route is the better one.
            cluster.register(cluster.broker, TopicConfig("New", 2, 2), version=2)
            await found.routes.poll()
            assert not found.routes.is_template("New")
            assert len(await found.routes.publish_queues("New")) == 2

    run_async(scenario())


def test_no_template_is_a_clear_error(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, ClientInstance(cluster.config()) as found:
            with pytest.raises(TopicNotExist, match=r"New does not exist.*create_topic"):
                await found.routes.publish_queues("New")

    run_async(scenario())


def test_a_route_survives_a_name_server_that_forgot(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, ClientInstance(cluster.config()) as found:
            queues = await found.routes.publish_queues("T")
            cluster.unregister(cluster.broker)
            await found.routes.poll()
            assert found.routes.published("T") == queues
            assert found.routes.broker_address("broker-a") == cluster.broker.address
            with pytest.raises(TopicNotExist):
                await found.routes.route("T", refresh=True)
            assert await found.routes.route("T")
            found.routes.forget("T")
            with pytest.raises(TopicNotExist):
                await found.routes.route("T")

    run_async(scenario())


def test_changes_are_notified_and_removed_brokers_forgotten(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            scripted_cluster("broker-a", "broker-b") as cluster,
            ClientInstance(cluster.config()) as found,
        ):
            told: list[str] = []
            found.routes.on_change(told.append)
            assert len(await found.routes.publish_queues("T")) == 8
            cluster.unregister(cluster.brokers[1])
            await found.routes.poll()
            assert told == ["T", "T"]
            assert len(found.routes.published("T")) == 4
            with pytest.raises(BrokerNotExist, match="broker-b"):
                found.routes.broker_address("broker-b")
            await found.routes.poll()
            assert told == ["T", "T"], "nothing new is not told"

    run_async(scenario())


def test_addresses_are_rewritten_and_members_found(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with serving(answering(0, encode_topic_route(ROUTE))) as (_, address):
            config = ClientConfig((address,), address_rewrite={"h:1": "127.0.0.1:5"})
            async with ClientInstance(config) as found:
                await found.routes.route("T")
                at = found.routes.broker_address
                assert (at("a"), at("a", 1)) == ("127.0.0.1:5", "h:2")
                assert at("a", 7, or_any=True) == "127.0.0.1:5"
                with pytest.raises(BrokerNotExist, match="id 7"):
                    at("a", 7)

    run_async(scenario())


def test_failures_ask_again_but_not_all_the_time(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            # By a clock that stands still: it is the same second all the time.
            async with ClientInstance(cluster.config(), clock=ManualClock()) as found:
                await found.routes.publish_queues("T")
                cluster.register(cluster.broker, TopicConfig("T", 6, 6), version=2)
                for _ in range(50):
                    found.routes.refresh_soon("T")
                assert len(found.routes._refreshing) == 1
                await until(lambda: not found.routes._refreshing)
                assert len(found.routes.published("T")) == 6
                cluster.register(cluster.broker, TopicConfig("T", 7, 7), version=3)
                found.routes.refresh_soon("T")
                assert not found.routes._refreshing, "only once a second"
                # What a stopped client is asked fails, and nothing is left running.
            with pytest.raises(ConnectionLost):
                await found.routes.route("Other")

    run_async(scenario())
