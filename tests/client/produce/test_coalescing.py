"""Concurrent sends are coalesced into few requests, each with its own result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.result import SendResult
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import NotAcknowledged, RemoteError, SystemBusy
from broker_core.protocol_codes import RequestCode
from tests.client.scripted_brokers import HANG_UP, scripted_cluster

M = OutgoingMessage


def test_every_send_gets_its_own_result(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            scripted_cluster("broker-a", "broker-b") as cluster,
            Producer(cluster.config(), "PG") as producer,
        ):
            await producer.publish_queues("T")
            sends = [producer.send(M("T", b"%d" % n, keys=f"k{n}")) for n in range(1_000)]
            results = await asyncio.gather(*sends)
            assert len({result.msg_id for result in results}) == 1_000
            places = {(result.queue, result.queue_offset) for result in results}
            assert len(places) == 1_000
            assert len({result.queue for result in results}) == 8
            assert len(cluster.sends()) < 20

    run_async(scenario())


def test_few_sends_go_alone_and_spread(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            scripted_cluster() as cluster,
            Producer(cluster.config(), "PG") as producer,
        ):
            results = await asyncio.gather(*(producer.send("T", b"x") for _ in range(8)))
            assert len({result.queue for result in results}) == 4
            assert len(cluster.sends()) == 8

    run_async(scenario())


def test_special_messages_travel_alone(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            scripted_cluster() as cluster,
            Producer(cluster.config(), "PG") as producer,
        ):
            sends = [producer.send("T", b"x") for _ in range(100)]
            sends += [
                producer.send("T", b"later", delay_level=2),
                producer.send("T", b"large" * 1_000),
                producer.send(M("T", b"careless", wait_store_ok=False)),
                producer.send("T", b"", timeout_ms=59_000),
            ]
            await asyncio.gather(*sends)
            alone = [s for s in cluster.sends() if s.code == RequestCode.SEND_MESSAGE_V2]
            assert len(alone) == 4

    run_async(scenario())


def test_a_refused_batch_is_taken_apart(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            scripted_cluster() as cluster,
            Producer(cluster.config(), "PG") as producer,
        ):

            def picky(command: RemotingCommand) -> RemotingCommand:
                if b"bad" in bytes(command.body):
                    return command.reply(13, "no bad ones")
                return cluster.broker._stored(command, 0)

            cluster.broker.always = picky
            bodies = [b"bad" if n == 77 else b"good" for n in range(200)]
            sends = [producer.send("T", body) for body in bodies]
            results = await asyncio.gather(*sends, return_exceptions=True)
            failed = [n for n, one in enumerate(results) if not isinstance(one, SendResult)]
            assert failed == [77]
            assert isinstance(results[77], RemoteError)
            assert results[77].code == 13

    run_async(scenario())


def test_a_lost_batch_is_retried_as_a_whole(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            scripted_cluster("broker-a", "broker-b") as cluster,
            Producer(cluster.config(), "PG") as producer,
        ):
            await producer.publish_queues("T")
            cluster.brokers[0].always = HANG_UP
            results = await asyncio.gather(*(producer.send("T", b"x") for _ in range(100)))
            assert {result.queue.broker_name for result in results} == {"broker-b"}

    run_async(scenario())


def test_unsafe_batches_are_unsafe_for_each(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            scripted_cluster() as cluster,
            Producer(cluster.config(), "PG") as producer,
        ):
            cluster.broker.always = 12
            sends = [producer.send("T", b"x") for _ in range(40)]
            results = await asyncio.gather(*sends, return_exceptions=True)
            errors = [one for one in results if isinstance(one, NotAcknowledged)]
            assert len(errors) == 40
            places = {(e.result.queue, e.result.queue_offset) for e in errors}  # type: ignore[attr-defined]
            assert len(places) == 40

    run_async(scenario())


def test_limits_hold_for_batches_too(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            limits: dict[str, Any] = {"in_flight_max": 1, "waiting_max": 2}
            async with Producer(cluster.config(), "PG", **limits) as producer:
                await producer.send("T", b"x")
                sends = [producer.send("T", b"x") for _ in range(4_000)]
                results = await asyncio.gather(*sends, return_exceptions=True)
                kinds = {type(one) for one in results}
                assert kinds == {SendResult, SystemBusy}
                await producer.flush()

    run_async(scenario())


def test_flush_waits_for_what_was_only_collected(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            async with Producer(cluster.config(), "PG") as producer:
                sends = [producer.send("T", b"x") for _ in range(100)]
                sends[5].cancel()
                await producer.flush()
                assert all(send.done() for send in sends)
                with pytest.raises(asyncio.CancelledError):
                    sends[5].result()
            sends = []
            async with Producer(cluster.config(), "PG") as producer:
                sends = [producer.send("T", b"x") for _ in range(100)]
            assert all(send.result() for send in sends)

    run_async(scenario())
