"""Waiting for the disk with a deadline that the store's tick looks at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker_core.errors import StoreFenced
from broker_core.flush.durable_ack import DurableAcks
from broker_core.protocol_codes import PutStatus
from broker_core.runtime.watermark import Watermark
from tests.fakes.manual_clock import ManualClock


def test_reached_positions_are_answered_in_order(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        flushed = Watermark(100)
        acks = DurableAcks(flushed, ManualClock(), 5_000)
        assert await acks.wait(100) is PutStatus.PUT_OK
        order: list[int] = []
        futures = [acks.wait(position) for position in (101, 150, 300)]
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: order.append(number))
        flushed.advance(150)
        assert [future.done() for future in futures] == [True, True, False]
        flushed.advance(300)
        assert [await future for future in futures] == [PutStatus.PUT_OK] * 3
        await asyncio.sleep(0)
        assert order == [0, 1, 2]

    run_async(scenario())


def test_the_deadline_counts_from_the_wait(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        clock, flushed = ManualClock(), Watermark(0)
        acks = DurableAcks(flushed, clock, 5_000)
        early = acks.wait(10)
        clock.advance(3_000)
        late = acks.wait(20)
        clock.advance(1_999)
        acks.tick()
        assert not early.done()
        clock.advance(1)
        acks.tick()
        assert await early is PutStatus.FLUSH_DISK_TIMEOUT
        assert not late.done()
        flushed.advance(20)
        assert await late is PutStatus.PUT_OK
        clock.advance(10_000)
        acks.tick()

    run_async(scenario())


def test_a_failure_is_an_unknown_outcome_for_all(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        flushed = Watermark(0)
        acks = DurableAcks(flushed, ManualClock(), 5_000)
        futures = [acks.wait(position) for position in (1, 2)]
        flushed.advance(1)
        flushed.fail(StoreFenced("sync failed"))
        assert await futures[0] is PutStatus.PUT_OK
        assert await futures[1] is PutStatus.UNKNOWN_ERROR
        assert await acks.wait(1) is PutStatus.PUT_OK
        assert await acks.wait(3) is PutStatus.UNKNOWN_ERROR

    run_async(scenario())


def test_cancelled_and_expired_waiters_are_harmless(
    run_async: Callable[..., Any],
) -> None:
    async def scenario() -> None:
        clock, flushed = ManualClock(), Watermark(0)
        acks = DurableAcks(flushed, clock, 1_000)
        cancelled, expired = acks.wait(10), acks.wait(10)
        cancelled.cancel()
        clock.advance(1_000)
        acks.tick()
        assert expired.result() is PutStatus.FLUSH_DISK_TIMEOUT
        waiting = acks.wait(10)
        flushed.advance(10)
        assert await waiting is PutStatus.PUT_OK
        assert flushed.waiting == 0

    run_async(scenario())
