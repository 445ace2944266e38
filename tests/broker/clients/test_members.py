"""Members on real connections are notified at once when one joins, leaves or is killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from broker_core.broker.clients.heartbeat import HeartbeatProcessor
from broker_core.broker.clients.members import ConsumerMembersProcessor
from broker_core.broker.tables.client_table import ClientTable, MemberNotice
from broker_core.codec.json.dialect import parse_json
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from tests.broker.broker_tables import group_table, topic_table
from tests.remoting.peers import RawPeer, raw_peer, serving, until
from tests.store.small_store import new_disk


@contextlib.asynccontextmanager
async def member_server() -> AsyncIterator[tuple[ClientTable, str]]:
    """The processors of members behind a real server."""
    disk = new_disk()
    groups, topics = group_table(disk), topic_table(disk)
    defer = asyncio.get_running_loop().call_soon
    clients = ClientTable(disk.clock, 120_000, MemberNotice(groups), defer=defer)
    handlers: dict[int, Any] = {
        **HeartbeatProcessor(clients=clients, groups=groups, topics=topics).handlers(),
        **ConsumerMembersProcessor(clients=clients).handlers(),
    }

    def handle(connection: Connection, command: RemotingCommand) -> Any:
        return handlers[command.code](connection, command)

    async with serving(handle) as (_, address):
        yield clients, address


async def beat(peer: RawPeer, client_id: str, opaque: int = 1) -> None:
    """Send a heartbeat of group CG and wait until it is answered; the notice comes after that."""
    consumer = ConsumerData("CG", subscriptions=(SubscriptionData("T", version=1),))
    body = encode_heartbeat(HeartbeatData(client_id, ("PG",), (consumer,)))
    peer.send(RemotingCommand(RequestCode.HEART_BEAT, {}, body, opaque=opaque))
    answer = await peer.next()
    assert (answer.code, answer.is_response, answer.opaque) == (0, True, opaque)


async def told(peer: RawPeer) -> None:
    """Wait for a notice."""
    notice = await peer.next()
    assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert notice.ext == {"consumerGroup": "CG"}
    assert notice.is_oneway
    assert not notice.is_response
    assert notice.opaque != 0, "Node clients answer 0 with a number of their own"


async def ids(peer: RawPeer) -> list[str]:
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    peer.send(RemotingCommand(code, {"consumerGroup": "CG"}, opaque=9))
    answer = await peer.next()
    assert answer.code == 0
    found: list[str] = parse_json(answer.body)["consumerIdList"]
    return found


def test_a_join_and_a_dead_client_are_notified_at_once(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with member_server() as (clients, address), raw_peer(address) as first:
            await beat(first, "c1")
            await told(first)
            async with raw_peer(address) as second:
                await beat(second, "c2")
                await told(second)
                await told(first)
                assert await ids(first) == await ids(second) == ["c1", "c2"]
                second.writer.transport.abort()
                await told(first)
            assert await ids(first) == ["c1"]
            await until(lambda: len(clients.producers("PG")) == 1)

    run_async(scenario())


async def notices_until_answered(peer: RawPeer) -> int:
    """How many notices came before the answer to a request that is sent now."""
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    peer.send(RemotingCommand(code, {"consumerGroup": "CG"}, opaque=8))
    count = 0
    while not (await peer.next()).is_response:
        count += 1
    return count


def test_members_that_leave_together_are_notified_together(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with member_server() as (clients, address), raw_peer(address) as watcher:
            await beat(watcher, "w")
            async with contextlib.AsyncExitStack() as stack:
                others = [await stack.enter_async_context(raw_peer(address)) for _ in range(50)]
                for number, peer in enumerate(others):
                    await beat(peer, f"c{number}")
                assert await notices_until_answered(watcher) == 51
                for peer in others:
                    peer.writer.transport.abort()
                await until(lambda: clients.consumer_ids("CG") == ["w"])
            assert 1 <= await notices_until_answered(watcher) < 25

    run_async(scenario())
