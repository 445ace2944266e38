"""A stream says that it has read everything only after every broker of its topics has answered."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker_core import errors
from pyspark_rmq.source.offsets.stream_position import StreamOffset
from pyspark_rmq.source.stream_session import Limits, StreamSession
from tests.client.scripted_brokers import ScriptedCluster
from tests.pyspark_rmq.source.test_absent_brokers import (
    QUEUE_A,
    QUEUE_B,
    START,
    STORES,
    TOPIC,
    _run,
    _teach,
)

READ = StreamOffset({QUEUE_A: 5, QUEUE_B: 7}, stores=STORES)
IMPATIENT = {"rmqConsumer.pollTimeoutMs": "300", "latestOffsetWaitMs": "10"}


@pytest.mark.parametrize("is_listed", [True, False], ids=["in the route", "not in the route"])
@pytest.mark.parametrize("may_wait", [True, False])
def test_a_broker_that_stays_away_is_an_error(is_listed: bool, may_wait: bool) -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        assert await session.latest(READ, Limits(), may_wait=may_wait) is READ
        await cluster.brokers[1].stop()
        if not is_listed:
            cluster.unregister(cluster.brokers[1])
        with pytest.raises(
            errors.ServiceNotAvailable,
            match=r"broker broker-b did not answer within .* s \(rmqConsumer.pollTimeoutMs=300\)",
        ):
            await session.latest(READ, Limits(), may_wait=may_wait)

    _run(work, **IMPATIENT)


def test_a_broker_that_comes_back_is_read_first() -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        away = cluster.brokers[1]
        await away.stop()
        cluster.unregister(away)
        looked = asyncio.Event()
        say_once = session._say_once

        def say(key: object, text: str) -> None:
            say_once(key, text)
            looked.set()

        session._say_once = say  # type: ignore[method-assign]
        asked = asyncio.ensure_future(session.latest(READ, Limits(), may_wait=False))
        await looked.wait()
        assert not asked.done()
        _teach(away, 9)
        await away.start()
        cluster.register(away, TOPIC, version=2)
        assert (await asked).queues == {QUEUE_A: 5, QUEUE_B: 9}

    _run(work)


def test_messages_of_other_brokers_are_not_held_up() -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        await cluster.brokers[1].stop()
        end = await session.latest(START, Limits(), may_wait=True)
        assert end.queues == {QUEUE_A: 5, QUEUE_B: 1}
        asked = asyncio.ensure_future(session.latest(end, Limits(), may_wait=True))
        await asyncio.wait((asked,), timeout=0.1)
        assert not asked.done()
        _teach(cluster.brokers[0], 6)
        assert (await asked).queues == {QUEUE_A: 6, QUEUE_B: 1}

    _run(work)


def test_without_failing_it_is_left_out_until_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        away = cluster.brokers[1]
        await away.stop()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert await session.latest(READ, Limits(), may_wait=True) is READ
        told = [r for r in caplog.records if "did not answer within" in r.getMessage()]
        assert len(told) == 1
        _teach(away, 9)
        await away.start()
        while (end := await session.latest(READ, Limits(), may_wait=True)) is READ:
            pass
        assert end.queues == {QUEUE_A: 5, QUEUE_B: 9}

    _run(work, failOnDataLoss="false", **IMPATIENT)


def test_no_answer_is_an_error_in_any_case() -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        for broker in cluster.brokers:
            await broker.stop()
        with pytest.raises(errors.ServiceNotAvailable, match="broker broker-a, broker-b did not"):
            await session.latest(READ, Limits(), may_wait=True)

    _run(work, failOnDataLoss="false", **IMPATIENT)
