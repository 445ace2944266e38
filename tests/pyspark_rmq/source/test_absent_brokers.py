"""Brokers that are down while a query looks up offsets: their queues wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker_core import ClientInstance, MessageQueue, errors
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.offset_planning import ranges_between
from pyspark_rmq.source.offsets.stream_position import StoreIdentity, StreamOffset
from pyspark_rmq.source.stream_session import Limits, Seen, StreamSession
from tests.client.scripted_brokers import ScriptedBroker, ScriptedCluster, scripted_cluster

TOPIC = TopicConfig("T", 1, 1)
QUEUE_A, QUEUE_B = (MessageQueue("T", name, 0) for name in ("broker-a", "broker-b"))
STORES = {"broker-a": StoreIdentity("a" * 32, "1"), "broker-b": StoreIdentity("b" * 32, "1")}
START = StreamOffset({QUEUE_A: 1, QUEUE_B: 1}, stores=STORES)


def _teach(broker: ScriptedBroker, end: int) -> None:
    """Let it answer what a stream asks."""
    store = {"storeId": STORES[broker.name].store_id, "epoch": "1"}

    def capabilities(command: RemotingCommand) -> RemotingCommand:
        return command.reply(ext={"topicEnds": "1", **store})

    def ends(command: RemotingCommand) -> RemotingCommand:
        return command.reply(ext={"ends": str(end), **store})

    def nothing(command: RemotingCommand) -> RemotingCommand:
        return command.reply(ResponseCode.PULL_NOT_FOUND, ext=dict.fromkeys(
            ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"), "0"
        ))  # fmt: skip

    broker.answers[RequestCode.CAPABILITIES] = capabilities
    broker.answers[RequestCode.TOPIC_ENDS] = ends
    broker.answers[RequestCode.PULL_MESSAGE] = nothing


def _run(
    work: Callable[[ScriptedCluster, StreamSession], Coroutine[Any, Any, None]], **given: str
) -> None:
    async def scenario() -> None:
        async with scripted_cluster("broker-a", "broker-b", topics=(TOPIC,)) as cluster:
            for broker, end in zip(cluster.brokers, (5, 7), strict=True):
                _teach(broker, end)
            texts = {
                "rmq.namesrv.addr": cluster.name_server,
                "subscribe": "T",
                "partition.metadata.cache.ttl.ms": "0",
                **given,
            }
            options = SourceOptions.parse(texts).for_stream()
            async with ClientInstance(cluster.config()) as client:
                session = StreamSession(client, options)
                try:
                    await work(cluster, session)
                finally:
                    await session.close()

    asyncio.run(scenario())


async def _planned(session: StreamSession, start: StreamOffset = START) -> dict[str, Any]:
    end = await session.latest(start, Limits(), may_wait=False)
    return {part.broker_name: (part.start, part.until) for part in ranges_between(start, end)}


@pytest.mark.parametrize("is_listed", [True, False], ids=["in the route", "not in the route"])
def test_available_now_waits_for_a_broker_that_restarts(is_listed: bool) -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        away = cluster.brokers[1]
        await away.stop()
        if not is_listed:
            cluster.unregister(away)

        async def come_back() -> None:
            await looked.wait()
            await away.start()
            cluster.register(away, TOPIC, version=2)

        looked = asyncio.Event()
        say_once = session._say_once

        def say(key: object, text: str) -> None:
            say_once(key, text)
            looked.set()

        session._say_once = say  # type: ignore[method-assign]
        session.fix_target()
        planned, _ = await asyncio.gather(_planned(session), come_back())
        assert planned == {"broker-a": (1, 5), "broker-b": (1, 7)}

    _run(work)


@pytest.mark.parametrize("is_listed", [True, False], ids=["in the route", "not in the route"])
def test_available_now_does_not_end_well_without_a_broker(is_listed: bool) -> None:
    impatient = {"rmqConsumer.pollTimeoutMs": "300"}

    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        await cluster.brokers[1].stop()
        if not is_listed:
            cluster.unregister(cluster.brokers[1])
        session.fix_target()
        with pytest.raises(
            errors.ServiceNotAvailable,
            match=r"b did not answer within .* s \(rmqConsumer.pollTimeoutMs=300\).*failOnData",
        ):
            await _planned(session)

    _run(work, **impatient)

    async def careless(cluster: ScriptedCluster, session: StreamSession) -> None:
        await cluster.brokers[1].stop()
        session.fix_target()
        assert await _planned(session) == {"broker-a": (1, 5)}

    _run(careless, failOnDataLoss="false", **impatient)


def test_a_stream_continues_with_the_other_brokers() -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        away = cluster.brokers[1]
        await away.stop()
        cluster.unregister(away)
        assert await _planned(session) == {"broker-a": (1, 5)}
        await away.start()
        cluster.register(away, TOPIC, version=2)
        assert await _planned(session) == {"broker-a": (1, 5), "broker-b": (1, 7)}

    _run(work)


def test_a_slave_that_cannot_name_its_log_is_not_read() -> None:
    """An old master that came back: the end of its log may be in no other log."""
    seen = Seen({QUEUE_A: 9, QUEUE_B: 9}, {"broker-b": STORES["broker-b"]}, {"broker-a"})
    assert seen.since(START).ends == {QUEUE_B: 9}
    # Another product sends no name.
    nameless = START._replace(stores={"broker-a": StoreIdentity()})
    assert seen.since(nameless).ends == {QUEUE_A: 9, QUEUE_B: 9}
    # A slave that is behind takes nothing back.
    behind = Seen({QUEUE_A: 0}, STORES, {"broker-a"})
    assert behind.since(START).ends == {QUEUE_A: 1}


def _refuse_begins(broker: ScriptedBroker, times: int) -> None:
    """The broker goes away between its end and its beginning, for so many questions."""
    left = [times]

    def begin(command: RemotingCommand) -> RemotingCommand:
        if left[0] > 0:
            left[0] -= 1
            return command.reply(ResponseCode.SYSTEM_BUSY, "starting")
        return command.reply(ext={"offset": "2"})

    broker.answers[RequestCode.GET_MIN_OFFSET] = begin


NEW_QUEUE = StreamOffset({QUEUE_A: 1}, stores=STORES)


def test_a_new_queue_whose_broker_goes_away_is_for_later() -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        _refuse_begins(cluster.brokers[1], 4)
        assert await _planned(session, NEW_QUEUE) == {"broker-a": (1, 5)}
        assert await _planned(session, NEW_QUEUE) == {"broker-a": (1, 5), "broker-b": (2, 7)}

    _run(work)


def test_available_now_waits_for_where_a_new_queue_begins() -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        _refuse_begins(cluster.brokers[1], 6)
        session.fix_target()
        assert await _planned(session, NEW_QUEUE) == {"broker-a": (1, 5), "broker-b": (2, 7)}

    _run(work)

    async def impatient(cluster: ScriptedCluster, session: StreamSession) -> None:
        _refuse_begins(cluster.brokers[1], 1_000_000)
        session.fix_target()
        with pytest.raises(errors.SystemBusy):
            await _planned(session, NEW_QUEUE)

    _run(impatient, **{"rmqConsumer.pollTimeoutMs": "300"})


def test_an_empty_new_queue_costs_no_question() -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        _teach(cluster.brokers[1], 0)
        asked: list[RemotingCommand] = []
        cluster.brokers[1].answers[RequestCode.GET_MIN_OFFSET] = lambda c: asked.append(c)
        assert await _planned(session, NEW_QUEUE) == {"broker-a": (1, 5)}
        assert not asked

    _run(work)
