"""How often and how long brokers are asked for offsets."""

from __future__ import annotations

import asyncio

import pytest

from broker_core import ClientConfig, ClientInstance, errors
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.offset_lookup import OffsetLookup
from tests.fakes.manual_clock import ManualClock


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
