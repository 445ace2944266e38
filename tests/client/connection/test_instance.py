"""Heartbeats, farewells, and requests that come from brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.client.connection.instance import (
    ClientInstance,
    ConsumerRegistration,
    ProducerRegistration,
)
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.codec.wire.bodies.heartbeat_data import ConsumerData
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    InvalidArgument,
    RequestNotSupported,
)
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from tests.client.scripted_brokers import ScriptedBroker, ScriptedCluster, scripted_cluster
from tests.remoting.peers import PATIENT_MS, until


def consumer(group: str = "CG", **options: Any) -> ConsumerRegistration:
    data = ConsumerData(group, subscriptions=(parse_tag_expression("T", "A || B", 1),))
    options.setdefault("rebalance", lambda: None)
    return ConsumerRegistration(group, lambda: data, **options)


async def _asked(broker: ScriptedBroker, command: RemotingCommand) -> RemotingCommand:
    """What the client answers to a request of the broker."""
    [connection] = [one for one in broker.connections if not one.is_closed]
    return await connection.request(command, PATIENT_MS)


async def _connected(cluster: ScriptedCluster, found: ClientInstance) -> None:
    await found.routes.route("T")
    assert await found.send_heartbeats() == len(cluster.brokers)


def test_a_new_group_is_sent_to_brokers_at_once(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            scripted_cluster("broker-a", "broker-b") as cluster,
            ClientInstance(cluster.config(client_id="me")) as found,
        ):
            found.add_producer("PG")
            await found.routes.route("T")
            await until(lambda: all(broker.heartbeats for broker in cluster.brokers))
            heartbeat = cluster.broker.heartbeats[0]
            assert heartbeat.client_id == "me"
            assert heartbeat.producers == ("PG", "CLIENT_INNER_PRODUCER")
            found.add_consumer(consumer())
            await until(lambda: cluster.broker.heartbeats[-1].consumers)
            [data] = cluster.broker.heartbeats[-1].consumers
            assert data.group == "CG"
            assert data.subscriptions[0].tags == ("A", "B")
            assert set(found.heartbeats.broker_versions) == {b.address for b in cluster.brokers}

    run_async(scenario())


def test_heartbeats_go_on(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            scripted_cluster() as cluster,
            ClientInstance(cluster.config(heartbeat_interval_ms=20)) as found,
        ):
            found.add_producer("PG")
            await found.routes.route("T")
            await until(lambda: len(cluster.broker.heartbeats) > 3)

    run_async(scenario())


def test_no_group_no_heartbeat(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, ClientInstance(cluster.config()) as found:
            await found.routes.route("T")
            assert await found.send_heartbeats() == 0
            assert not cluster.broker.connections

    run_async(scenario())


def test_a_broker_that_comes_back_gets_another_heartbeat(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, ClientInstance(cluster.config()) as found:
            found.add_producer("PG")
            await _connected(cluster, found)
            await cluster.broker.stop()
            before = len(cluster.broker.heartbeats)
            assert await found.send_heartbeats() == 0
            await cluster.broker.start()
            # No request of ours: the lost connection alone is the reason.
            await until(lambda: len(cluster.broker.heartbeats) > before)

    run_async(scenario())


def test_a_client_that_stops_unregisters(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            async with ClientInstance(cluster.config(client_id="me")) as found:
                found.add_producer("PG")
                found.add_consumer(consumer())
                found.add_consumer(consumer("CG2"))
                await _connected(cluster, found)
                await found.remove_consumer("CG2")
                await found.remove_consumer("CG2")
                assert cluster.broker.farewells == [{"clientID": "me", "consumerGroup": "CG2"}]
            assert len(cluster.broker.farewells) == 3
            assert {"clientID": "me", "producerGroup": "PG"} in cluster.broker.farewells
            assert {"clientID": "me", "consumerGroup": "CG"} in cluster.broker.farewells
            with pytest.raises(ConnectionLost, match="new one"):
                await found.start()

    run_async(scenario())


def test_silent_brokers_do_not_hold_up_the_end(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            # Not for as long as an answer may take.
            found = ClientInstance(cluster.config(request_timeout_ms=600_000))
            await found.start()
            found.add_producer("PG")
            await _connected(cluster, found)
            cluster.broker.answers[RequestCode.UNREGISTER_CLIENT] = lambda command: None
            await asyncio.wait_for(found.stop(), 120)

    run_async(scenario())


def test_groups_are_checked(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, ClientInstance(cluster.config()) as found:
            found.add_producer("G")
            found.add_consumer(consumer("G"))
            with pytest.raises(InvalidArgument, match="producer group G is already"):
                found.add_producer("G")
            with pytest.raises(InvalidArgument, match="consumer group G is already"):
                found.add_consumer(consumer("G"))
            with pytest.raises(InvalidArgument, match="character"):
                found.add_producer("a b")

    run_async(scenario())


def test_requests_of_brokers_find_their_party(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, ClientInstance(cluster.config()) as found:
            rebalanced: list[str] = []
            seen: list[tuple[str, int]] = []

            def handler_of(name: str) -> Any:
                def handle(connection: Connection, command: RemotingCommand) -> RemotingCommand:
                    seen.append((name, command.code))
                    return command.reply(0, body=name.encode())

                return handle

            for group in ("CG", "CG2"):
                handlers = {code: handler_of(group) for code in (220, 221, 307, 309)}
                found.add_consumer(
                    consumer(
                        group,
                        rebalance=lambda group=group: rebalanced.append(group),
                        handlers=handlers,
                    )
                )
            found.add_producer(ProducerRegistration("PG", {39: handler_of("PG")}))
            found.requests.set_handler(326, handler_of("reply"))
            await _connected(cluster, found)

            await _asked(cluster.broker, RemotingCommand(40, {"consumerGroup": "CG2"}))
            assert rebalanced == ["CG2"]
            for code, field in ((220, "group"), (221, "group"), (307, "consumerGroup")):
                command = RemotingCommand(code, {field: "CG2"})
                assert (await _asked(cluster.broker, command)).body == b"CG2"
            record = encode_record(
                MessageRecord("T", 0, b"half", property_text=b"PGROUP\x01PG\x02")
            )
            assert (await _asked(cluster.broker, RemotingCommand(39, {}, record))).body == b"PG"
            assert (await _asked(cluster.broker, RemotingCommand(326))).body == b"reply"
            found.requests.set_handler(326, None)
            for code in (326, 999):
                assert (await _asked(cluster.broker, RemotingCommand(code))).code == 3

    run_async(scenario())


def test_hostile_requests_are_answered_with_errors(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, ClientInstance(cluster.config()) as found:
            found.add_producer("PG")
            await _connected(cluster, found)
            for command, words in (
                (RemotingCommand(307, {"consumerGroup": "nobody"}), "'nobody' is not on this"),
                (RemotingCommand(309), "'' is not on this"),
                (RemotingCommand(39, {}, b"\x00\x00\x00\x09garbage"), "cannot be read"),
                (RemotingCommand(39, {}, b""), "cannot be read"),
            ):
                answer = await _asked(cluster.broker, command)
                assert answer.code == 1
                assert words in (answer.remark or "")
            answer = await _asked(cluster.broker, RemotingCommand(40))
            assert answer.code == 0

    run_async(scenario())


def test_brokers_are_asked_by_name(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, ClientInstance(cluster.config()) as found:
            with pytest.raises(BrokerNotExist, match="broker-a"):
                await found.request_broker("broker-a", RemotingCommand(28))
            await found.routes.route("T")
            answer = await found.request_broker("broker-a", RemotingCommand(28))
            assert answer.code == 3
            with pytest.raises(RequestNotSupported):
                await found.ask_broker("broker-a", RemotingCommand(28))
            await cluster.broker.stop()
            with pytest.raises(ConnectionLost):
                await found.request_broker("broker-a", RemotingCommand(28))

    run_async(scenario())
