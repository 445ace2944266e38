"""Messages after the listener: done, retried, given up; one at a time if ordered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.concurrent import split_by_verdict
from broker_core.client.push.types import (
    ConsumeContext,
    ConsumeStatus,
)
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.heartbeat_data import BROADCASTING
from broker_core.protocol_codes import RequestCode
from tests.client.push.consuming_stage import Run, Stage, play
from tests.client.queue_broker import QUEUE
from tests.remoting.peers import until


def test_progress_waits_for_the_slowest(run_async: Run) -> None:
    gate = asyncio.Event()

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        if messages[0].queue_offset == 1:
            await gate.wait()

    async def work(stage: Stage) -> None:
        stage.give(0, 1, 2, 3)
        await until(lambda: stage.assigned.backlog.count == 1)
        assert stage.progress == 1
        gate.set()
        await until(lambda: stage.progress == 4)

    play(run_async, listen, work)


@pytest.mark.parametrize("answer", [ConsumeStatus.LATER, "yes", True, 0])
def test_what_is_not_done_goes_back_first(run_async: Run, answer: object) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        context.delay_level = 5
        return answer

    async def work(stage: Stage) -> None:
        stage.give(0)
        await until(lambda: stage.progress == 1)
        [back] = stage.sent_back()
        assert (back["offset"], back["group"], back["delayLevel"]) == ("100", "G", "5")
        assert back["maxReconsumeTimes"] == "16"

    play(run_async, listen, work)


def test_a_batch_that_is_partly_done(run_async: Run) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        context.succeeded = 2
        return ConsumeStatus.LATER

    async def work(stage: Stage) -> None:
        stage.give(0, 1, 2)
        await until(lambda: stage.progress == 3)
        assert [back["offset"] for back in stage.sent_back()] == ["102"]

    play(run_async, listen, work, batch_size=10)


def test_a_message_that_cannot_be_sent_back_holds_progress(run_async: Run) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        return ConsumeStatus.LATER if messages[0].queue_offset == 0 else None

    async def work(stage: Stage) -> None:
        stage.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda c: c.reply(1, "no")
        stage.give(0, 1)
        await until(lambda: stage.sent_back() and stage.assigned.backlog.count == 1)
        assert stage.progress in (None, 0)
        [message] = stage.assigned.backlog._held.values()
        await until(lambda: message.reconsume_times == 1)

    play(run_async, listen, work)


def test_broadcasting_has_no_retries(run_async: Run) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        raise ValueError("on purpose")

    async def work(stage: Stage) -> None:
        stage.give(0, 1)
        await until(lambda: stage.progress == 2)
        assert stage.sent_back() == []

    play(run_async, listen, work, model=BROADCASTING)


def test_the_number_of_calls_at_once_is_limited(run_async: Run) -> None:
    running, most, done = 0, 0, 0

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        done += 1

    async def work(stage: Stage) -> None:
        stage.give(*range(50))
        await until(lambda: done == 50)
        assert most == 7

    play(run_async, listen, work, concurrency=7)


def test_split() -> None:
    messages = [
        ReceivedMessage(MessageRecord("T", 0, b"", queue_offset=n), QUEUE) for n in range(3)
    ]
    context = ConsumeContext(QUEUE)
    assert split_by_verdict(messages, ConsumeStatus.SUCCESS, context) == (messages, [])
    assert split_by_verdict(messages, ConsumeStatus.LATER, context) == ([], messages)
    for succeeded, done in ((1, 1), (9, 3), (-4, 0)):
        context.succeeded = succeeded
        assert len(split_by_verdict(messages, ConsumeStatus.LATER, context)[0]) == done
