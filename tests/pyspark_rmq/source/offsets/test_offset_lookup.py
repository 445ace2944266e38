"""Identity of a broker's log, and how often brokers are asked."""

from __future__ import annotations

import asyncio

import pytest

from broker_core import ClientConfig, ClientInstance, MessageQueue, errors
from broker_core.client.pull.reader_requests import ask_topic_ends
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.offset_lookup import OffsetLookup
from pyspark_rmq.source.offsets.stream_position import StoreIdentity
from tests.client.scripted_brokers import ScriptedCluster, scripted_cluster
from tests.fakes.manual_clock import ManualClock

BUSY = "busy"
OTHER_PRODUCT = "other product"
NAMELESS = {"topicEnds": "1", "bulkPull": "1", "storeId": "", "epoch": ""}
NAMED = {**NAMELESS, "storeId": "a" * 32, "epoch": "3"}


def _script(cluster: ScriptedCluster, *answers: str | dict[str, str]) -> list[int]:
    """The broker answers like this about its capabilities, with the last answer from then on."""
    asked: list[int] = []

    def tell(command: RemotingCommand) -> RemotingCommand:
        answer = answers[min(len(asked), len(answers) - 1)]
        asked.append(len(asked))
        if answer == BUSY:
            return command.reply(ResponseCode.SYSTEM_BUSY, "starting")
        if answer == OTHER_PRODUCT:
            return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
        assert isinstance(answer, dict)
        return command.reply(ResponseCode.SUCCESS, None, answer)

    cluster.broker.answers[RequestCode.CAPABILITIES] = tell
    return asked


def _stores(*answers: str | dict[str, str]) -> tuple[dict[str, StoreIdentity], int]:
    """What is found, and how often the broker was asked."""

    async def look() -> tuple[dict[str, StoreIdentity], int]:
        async with scripted_cluster() as cluster:
            asked = _script(cluster, *answers)
            given = {"rmq.namesrv.addr": cluster.name_server, "subscribe": "T"}
            options = SourceOptions.parse(given).for_stream()
            async with ClientInstance(cluster.config()) as client:
                await client.routes.route("T")
                found = await OffsetLookup(client, options).stores({"broker-a"})
            return found, len(asked)

    return asyncio.run(look())


def test_the_name_that_a_broker_gives() -> None:
    assert _stores(NAMED) == ({"broker-a": StoreIdentity("a" * 32, "3")}, 1)


def test_another_product_has_a_log_without_a_name() -> None:
    """So it is noticed that offsets of one of our logs do not belong to it."""
    assert _stores(OTHER_PRODUCT) == ({"broker-a": StoreIdentity("", "")}, 1)


@pytest.mark.parametrize("first", [NAMELESS, BUSY], ids=["slave", "busy"])
def test_capabilities_that_are_missing_are_requested_again(first: str | dict[str, str]) -> None:
    """A slave that was the master and has no address of the new one yet; a broker that starts."""
    assert _stores(first, NAMED) == ({"broker-a": StoreIdentity("a" * 32, "3")}, 2)
    # Taken for another log, it would stop a stream that lost nothing.
    assert _stores(first) == ({}, 4)


def test_no_ends_without_the_capabilities_of_a_broker() -> None:
    """Asked as another product, it would answer with offsets that may not be durable."""

    async def ask() -> None:
        async with scripted_cluster() as cluster:
            asked = _script(cluster, BUSY)
            single = []
            cluster.broker.answers[RequestCode.GET_MAX_OFFSET] = single.append
            async with ClientInstance(cluster.config()) as client:
                with pytest.raises(errors.SystemBusy, match="does not report its capabilities"):
                    await ask_topic_ends(client, "T", "broker-a", "readers")
                given = {"rmq.namesrv.addr": cluster.name_server, "subscribe": "T"}
                options = SourceOptions.parse(given).for_stream()
                queue = MessageQueue("T", "broker-a", 0)
                found = await OffsetLookup(client, options).look([queue])
            assert set(found.silent) == {"broker-a"}
            assert not found.ends
            assert not single
            assert len(asked) == 1 + 4

    asyncio.run(ask())


def tries_of_a_broker_that_hangs(hangs_ms: int, poll_timeout_ms: int) -> int:
    """The number of requests, each of which ends after `hangs_ms` without an answer."""
    clock = ManualClock()
    options = SourceOptions.parse(
        {
            "nameServer": "127.0.0.1:1",
            "subscribe": "t",
            "rmqConsumer.pollTimeoutMs": str(poll_timeout_ms),
            "fetchOffset.numRetries": "3",
            "fetchOffset.retryIntervalMs": "1",
        }
    )
    tries = 0

    async def ask() -> int:
        nonlocal tries
        tries += 1
        clock.advance(hangs_ms)
        raise errors.RequestTimeout("no answer")

    async def scenario() -> None:
        client = ClientInstance(ClientConfig("127.0.0.1:1"), clock=clock)
        await OffsetLookup(client, options)._tried(ask)

    with pytest.raises(errors.RequestTimeout):
        asyncio.run(scenario())
    return tries


def test_a_broker_that_hangs_is_not_asked_again_after_the_limit() -> None:
    assert tries_of_a_broker_that_hangs(10_000, 120_000) == 4
    assert tries_of_a_broker_that_hangs(10_000, 15_000) == 2
    assert tries_of_a_broker_that_hangs(10_000, 5_000) == 1
