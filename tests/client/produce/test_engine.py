"""Every send gets exactly one result, in spite of broker errors, cancellation and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.result import SendResult
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import ConnectionLost, RmqError
from broker_core.protocol_codes import ResponseCode
from tests.client.scripted_brokers import HANG_UP, SILENCE, scripted_cluster
from tests.remoting.peers import until

M = OutgoingMessage

STEPS = (
    None, None, None, HANG_UP, SILENCE, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR,
    ResponseCode.MESSAGE_ILLEGAL, ResponseCode.FLUSH_SLAVE_TIMEOUT,
)  # fmt: skip


def test_flush_returns_when_the_producer_stops(
    run_async: Callable[..., Any],
) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            producer = Producer(cluster.config(), "PG", in_flight_max=2, coalesce=False)
            await producer.start()
            cluster.broker.always = SILENCE
            sends = [producer.send("T", b"x") for _ in range(5)]
            await until(lambda: len(cluster.broker.sends) == 2)
            waiting = asyncio.ensure_future(producer.flush())
            await asyncio.sleep(0)
            await producer.stop(wait_ms=20)
            await asyncio.wait_for(waiting, 120)
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(result) for result in results} == {ConnectionLost}

    run_async(scenario())


def test_a_producer_stopped_in_the_turn_of_a_send_leaves_no_gate_behind(
    run_async: Callable[..., Any],
) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            producer = Producer(cluster.config(), "PG", coalesce=False)
            await producer.start()
            engine = producer._engine
            # The task that looks for the route is cancelled before it has run at all.
            send = producer.send("T", b"x")
            assert engine._gates
            await engine.close()
            assert isinstance(send.exception(), ConnectionLost)
            assert not engine._gates and not engine._tasks and engine.unfinished == 0
            await producer.stop(wait_ms=0)

    run_async(scenario())


def test_a_send_whose_retry_comes_while_the_producer_stops_fails(
    run_async: Callable[..., Any],
) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            producer = Producer(cluster.config(), "PG", timeout_ms=120_000, coalesce=False)
            await producer.start()
            engine = producer._engine
            cluster.broker.always = ResponseCode.SYSTEM_BUSY
            send = producer.send("T", b"x")
            await until(lambda: any(r.busy_times and r.timer for r in engine._active))
            (request,) = engine._active

            async def ends_after_the_retry() -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    await until(lambda: request.timer is None or send.done())

            task = asyncio.ensure_future(ends_after_the_retry())
            engine._tasks.add(task)
            task.add_done_callback(engine._tasks.discard)
            await asyncio.sleep(0)
            await producer.stop(wait_ms=0)
            assert isinstance(send.exception(), ConnectionLost)
            assert engine.unfinished == 0

    run_async(scenario())


def _send(producer: Producer, random: Random, number: int) -> asyncio.Future[Any]:
    body = b"%d" % number
    match random.randrange(5):
        case 0:
            return producer.send_ordered(M("T", body), random.choice("abc"))
        case 1:
            return producer.send_batch([M("T", body), M("T", body)])
        case 2:
            queue = MessageQueue("T", random.choice(("broker-a", "broker-b")), 0)
            return producer.send("T", body, queue=queue)
    return producer.send("T", body, timeout_ms=random.choice((None, 50)))


@pytest.mark.parametrize("seed", range(6))
def test_every_send_ends(seed: int, run_async: Callable[..., Any]) -> None:
    random = Random(seed)

    async def scenario() -> None:
        async with scripted_cluster("broker-a", "broker-b") as cluster:
            for broker in cluster.brokers:
                broker.script.extend(random.choice(STEPS) for _ in range(60))
            producer = Producer(
                cluster.config(), "PG", timeout_ms=300, in_flight_max=8, coalesce=seed % 2 == 0
            )
            await producer.start()
            sends: list[asyncio.Future[Any]] = []
            for number in range(150):
                sends.append(_send(producer, random, number))
                if random.random() < 0.1:
                    random.choice(sends).cancel()
                for _ in range(random.choice((0, 0, 0, 1, 20))):
                    await asyncio.sleep(0)
            if seed % 3:
                await asyncio.wait_for(producer.flush(), 120)
            await producer.stop(wait_ms=0)
            # Those that were sent together get it in the loop's next turn.
            await asyncio.wait(sends, timeout=120)
            assert all(send.done() for send in sends)
            outcomes = [None if s.cancelled() else s.exception() or s.result() for s in sends]
            assert all(isinstance(o, (RmqError, SendResult, tuple, type(None))) for o in outcomes)
            assert any(isinstance(o, SendResult) for o in outcomes)
            assert producer._engine.unfinished == 0
            assert not producer._engine._gates and not producer._engine._tasks

    run_async(scenario())
