"""Pops in order: one batch of a queue at a time, retries in place, the same attempt again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.pop.test_acknowledgement import arrived, make_group
from tests.broker.pop.test_processor import fill
from tests.broker.popping_client import Popped, PoppingClient
from tests.broker.running_broker import broker_config, running, until
from tests.fakes.held_clock import StoppedClock

Run = Callable[..., Any]
ORDER = {"order": "true"}


def test_a_queue_waits_for_its_acknowledgements(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=2)
            await fill(asker, 8, queues=2)
            client = PoppingClient(asker)
            one = await client.pop(maxMsgNums=2, attemptId="1", **ORDER)
            two = await client.pop(maxMsgNums=2, attemptId="2", **ORDER)
            assert {m.record.queue_id for m in one} != {m.record.queue_id for m in two}
            assert await client.pop(attemptId="3", **ORDER) == []
            held = asyncio.ensure_future(client.pop(pollTime=60_000, attemptId="3", **ORDER))
            await until(lambda: len(asker.broker.features.pop.pending) == 1)
            assert await client.ack(one[1]) == 0
            assert not held.done()
            assert await client.ack(one[0]) == 0
            queue = one[0].record.queue_id
            assert [m.record.queue_offset for m in await held] == [2, 3]
            assert {m.record.queue_id for m in await held} == {queue}
            assert asker.broker.context.offsets.query("G", "T", queue) == 2

    run_async(scenario())


def test_the_same_attempt_gets_the_same_messages(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 4, queues=1)
            client = PoppingClient(asker)
            lost = await client.pop(maxMsgNums=2, attemptId="x", **ORDER)
            again = await client.pop(maxMsgNums=2, attemptId="x", **ORDER)
            assert [m.body for m in again] == [m.body for m in lost] == [b"0", b"1"]
            assert await client.ack(lost[0]) == ResponseCode.NO_MESSAGE
            for message in again:
                assert message.tries == 0
                assert await client.ack(message) == 0
            assert [m.body for m in await client.pop(attemptId="y", **ORDER)] == [b"2", b"3"]

    run_async(scenario())


def test_retries_come_from_the_queue_and_are_counted(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        clock = StoppedClock()
        async with running(broker_config(tmp_path), clock=clock) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 4, queues=1)
            client = PoppingClient(asker)
            first = await client.pop(maxMsgNums=3, invisibleTime=50, attemptId="1", **ORDER)
            assert await client.ack(first[1]) == 0
            clock.advance(51)
            again = await arrived(client, maxMsgNums=2, attemptId="2", **ORDER)
            assert [(m.body, m.tries) for m in again] == [(b"0", 1), (b"2", 1)]
            assert asker.broker.context.topics.find("%RETRY%G_T") is None
            later = await client.change(again[0], 50)
            assert isinstance(later, Popped)
            assert await client.ack(again[1]) == 0
            clock.advance(51)
            [third] = await arrived(client, maxMsgNums=1, attemptId="3", **ORDER)
            assert (third.body, third.tries) == (b"0", 2)
            assert await client.ack(third) == 0
            [last] = await client.pop(attemptId="4", **ORDER)
            assert (last.body, last.tries) == (b"3", 0)

    run_async(scenario())


def test_new_messages_follow_those_that_come_again(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        clock = StoppedClock()
        async with running(broker_config(tmp_path), clock=clock) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 10, queues=1)
            client = PoppingClient(asker)
            first = await client.pop(maxMsgNums=3, invisibleTime=50, **ORDER)
            assert await client.ack(first[1]) == 0
            clock.advance(51)
            again = await arrived(client, maxMsgNums=5, **ORDER)
            assert [(m.body, m.tries) for m in again] == [
                (b"0", 1), (b"2", 1), (b"3", 0), (b"4", 0), (b"5", 0),
            ]  # fmt: skip
            assert await client.pop(**ORDER) == []
            for message in again:
                assert await client.ack(message) == 0
            assert len(await client.pop(**ORDER)) == 4

    run_async(scenario())


def test_a_message_in_order_is_a_dead_letter_after_the_last_retry(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await make_group(asker, "G", retryMaxTimes=1)
            await fill(asker, 2, queues=1)
            client = PoppingClient(asker)
            for tries in (0, 1):
                [found] = await arrived(client, maxMsgNums=1, invisibleTime=50, **ORDER)
                assert (found.body, found.tries) == (b"0", tries)
            [following] = await arrived(client, maxMsgNums=1, **ORDER)
            assert following.body == b"1"
            assert asker.broker.context.store.offsets("%DLQ%G", 0)[1] == 1

    run_async(scenario())


def test_order_and_no_order_mix(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 2, queues=1)
            client = PoppingClient(asker)
            await client.pop(maxMsgNums=1, invisibleTime=50, **ORDER)
            ledgers = asker.broker.features.pop.ledgers
            [(_, ledger)] = ledgers
            await until(lambda: ledger.given_again("", 1) == [0])
            # What an ordered pop left behind is found by any other one.
            assert [m.body for m in await client.pop(maxMsgNums=1)] == [b"0"]
            notice = await client.ask(RequestCode.NOTIFICATION, queueId=-1, order="true")
            assert json.loads(notice.ext["hasMsg"]) is False

    run_async(scenario())
