"""Leaving and dropping a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.types import (
    ConsumeContext,
)
from tests.client.push.consuming_stage import Run, Stage, play


@pytest.mark.parametrize("orderly", [False, True])
def test_a_dropped_queue_counts_no_more(run_async: Run, orderly: bool) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        entered.set()
        await gate.wait()

    async def work(stage: Stage) -> None:
        stage.give(0, 1)
        await entered.wait()
        stage.assigned.drop()
        gate.set()
        await stage.consumption.stop(1_000)
        assert stage.progress is None

    play(run_async, listen, work, orderly=orderly)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_stop_waits_for_the_call_under_way(run_async: Run, orderly: bool) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()
    calls = 0

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        nonlocal calls
        calls += 1
        entered.set()
        await gate.wait()

    async def work(stage: Stage) -> None:
        stage.give(0, 1, 2)
        await entered.wait()
        stage.assigned.leave()
        stopping = asyncio.ensure_future(stage.consumption.stop(60_000))
        await asyncio.sleep(0)
        assert not stopping.done()
        gate.set()
        await stopping
        assert (calls, stage.progress) == (1, 1)

    play(run_async, listen, work, orderly=orderly, concurrency=1)
