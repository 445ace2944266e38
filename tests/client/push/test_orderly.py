"""Orderly consumption: a failed message is retried before the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.types import (
    LEVEL_DEAD_LETTER,
    ConsumeContext,
    ConsumeStatus,
)
from tests.client.push.consuming_stage import Run, Stage, play
from tests.fakes.manual_clock import ManualClock
from tests.remoting.peers import until


def test_a_failed_message_is_retried_before_the_next(run_async: Run) -> None:
    seen: list[tuple[int, int]] = []

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        [message] = messages
        seen.append((message.queue_offset, message.reconsume_times))
        context.suspend_ms = 1
        if message.queue_offset == 1 and message.reconsume_times < 2:
            raise ValueError("not yet")
        return None

    async def work(stage: Stage) -> None:
        stage.give(0, 1, 2)
        await until(lambda: stage.progress == 3)
        assert seen == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
        assert stage.sent_back() == []

    play(run_async, listen, work, orderly=True)


def test_a_message_is_a_dead_letter_after_the_last_retry(run_async: Run) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        context.suspend_ms = 1
        return ConsumeStatus.LATER if messages[0].queue_offset == 0 else None

    async def work(stage: Stage) -> None:
        stage.give(0, 1)
        await until(lambda: stage.progress == 2)
        [back] = stage.sent_back()
        assert back["delayLevel"] == str(LEVEL_DEAD_LETTER)

    play(run_async, listen, work, orderly=True, max_reconsume_times=3)


def test_nothing_is_consumed_without_a_fresh_lock(run_async: Run) -> None:
    seen: list[int] = []
    clock = ManualClock()

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        seen.append(messages[0].queue_offset)

    async def work(stage: Stage) -> None:
        clock.advance(30_000)
        stage.give(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert seen == []
        stage.assigned.locked_at = clock.monotonic()
        stage.assigned.changed.set()
        await until(lambda: seen == [0])

    play(run_async, listen, work, clock, orderly=True)
