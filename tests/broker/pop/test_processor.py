"""Pops over real sockets: messages, long polling, filters, offsets of groups, invalid requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.wire.pop_handle import POP_CK
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.popping_client import PoppingClient
from tests.broker.running_broker import Asker, broker_config, running, until

Run = Callable[..., Any]


async def fill(
    asker: Asker, count: int, topic: str = "T", queues: int = 4, tags: str = "A", start: int = 0
) -> set[bytes]:
    bodies = set()
    for number in range(start, start + count):
        body = b"%d" % number
        text = f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01{tags}\x02n\x01{number}\x02"
        assert (await asker.send(topic, body, text, e=number % queues)).code == 0
        bodies.add(body)
    return bodies


def test_every_message_goes_to_one_consumer(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            sent = await fill(asker, 100)
            one, two = PoppingClient(asker), PoppingClient(asker)
            first = await one.pop(maxMsgNums=20)
            assert len(first) == 20
            rest = []
            while batch := await two.pop():
                rest += batch
            assert len(rest) == 80
            assert {m.body for m in first + rest} == sent
            assert (await one.answer()).code == ResponseCode.POLLING_TIMEOUT
            for message in first + rest:
                assert await one.ack(message) == 0
            offsets = asker.broker.context.offsets
            assert [offsets.query("G", "T", n) for n in range(4)] == [25] * 4
            assert asker.broker.features.pop.ledgers.in_flight_count == 0
            # Twice is right twice.
            assert await one.ack(first[0]) == 0
            # Another group has a place of its own.
            assert len(await PoppingClient(asker, "Other").drain()) == 100

    run_async(scenario())


def test_queues_take_turns(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            await fill(asker, 200)
            client = PoppingClient(asker)
            seen = [(await client.pop(maxMsgNums=1))[0].record.queue_id for _ in range(8)]
            assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3]
            one_queue = await client.pop(queueId=2, maxMsgNums=10)
            assert [m.record.queue_id for m in one_queue] == [2] * 10

    run_async(scenario())


def test_a_held_pop_is_served_by_the_next_message(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            client = PoppingClient(asker)
            pending = asker.broker.features.pop.pending
            held = [asyncio.ensure_future(client.pop(pollTime=60_000)) for _ in range(3)]
            other = asyncio.ensure_future(PoppingClient(asker, "Other").pop(pollTime=60_000))
            await until(lambda: len(pending) == 4)
            info = await client.ask(RequestCode.POLLING_INFO, queueId=-1)
            assert info.ext["pollingNum"] == "3"
            await fill(asker, 1, start=3)
            done, waiting = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
            assert (len(done), len(waiting), len(pending)) == (1, 2, 2)
            assert [m.body for m in done.pop().result()] == [b"3"]
            assert [m.body for m in await other] == [b"3"]
            await fill(asker, 2, start=4)
            found = await asyncio.gather(*waiting)
            assert {m.body for batch in found for m in batch} == {b"4", b"5"}
            assert len(pending) == 0

    run_async(scenario())


def test_pops_that_wait_and_pops_that_come_share_what_arrives(
    tmp_path: Path, run_async: Run
) -> None:
    """A pop that reads dispatches what has just come, which serves those that wait."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path, flushDiskType="ASYNC_FLUSH")) as asker:
            await asker.make_topic("T", queues=1)
            client = PoppingClient(asker)
            pending = asker.broker.features.pop.pending
            seen: list[bytes] = []
            for number in range(0, 20, 2):
                held = asyncio.ensure_future(client.pop(pollTime=60_000, maxMsgNums=1))
                await until(lambda: len(pending) == 1)
                both = [b"%d" % number, b"%d" % (number + 1)]
                answers = await asyncio.gather(
                    *(asker.send("T", body, e=0) for body in both), client.pop(maxMsgNums=1)
                )
                seen += [m.body for m in await held + answers[-1] + await client.pop()]
            assert sorted(seen) == sorted(b"%d" % number for number in range(20))

    run_async(scenario())


def test_a_held_pop_ends_in_time_and_with_its_connection(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            client = PoppingClient(asker)
            answer = await client.answer(pollTime=100)
            assert answer.code == ResponseCode.POLLING_TIMEOUT
            pending = asker.broker.features.pop.pending
            held = asyncio.ensure_future(client.answer(pollTime=60_000))
            await until(lambda: len(pending) == 1)
            await asker.client.close()
            await until(lambda: len(pending) == 0)
            await asyncio.gather(held, return_exceptions=True)
            # No request is held for what comes now.
            async with running(broker_config(tmp_path / "other")) as other:
                await other.make_topic("T")

    run_async(scenario())


def test_filters(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, enablePropertyFilter="true")) as asker:
            await asker.make_topic("T")
            await fill(asker, 40, tags="A")
            await fill(asker, 4, tags="B", start=40)
            by_tag = PoppingClient(asker, "ByTag")
            found = await by_tag.drain(expType="TAG", exp="B || C")
            assert {m.body for m in found} == {b"40", b"41", b"42", b"43"}
            offsets = asker.broker.context.offsets
            # What is not wanted is behind the group, too.
            assert [offsets.query("ByTag", "T", n) for n in range(4)] == [11] * 4
            by_sql = PoppingClient(asker, "BySql")
            found = await by_sql.drain(expType="SQL92", exp="n BETWEEN 10 AND 12")
            assert {m.body for m in found} == {b"10", b"11", b"12"}
            wrong = await by_sql.answer(expType="SQL92", exp="n BETWEEN")
            assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            # A message that matches no filter leaves a held pop waiting.
            held = asyncio.ensure_future(by_tag.pop(exp="B", pollTime=60_000))
            await until(lambda: len(asker.broker.features.pop.pending) == 1)
            await fill(asker, 4, tags="A")
            assert not held.done()
            await fill(asker, 1, tags="B", start=50)
            assert [m.body for m in await held] == [b"50"]

    run_async(scenario())


def test_where_a_new_group_begins(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 3, queues=1)
            # Nothing of the queue was deleted yet: a new group gets all of it.
            assert len(await PoppingClient(asker, "Late").pop(initMode=1)) == 3
            ledgers = asker.broker.features.pop.ledgers
            ledgers._queue_offsets = lambda topic, queue_id: (1, 3)  # type: ignore[method-assign]
            assert await PoppingClient(asker, "End").pop(initMode=1) == []
            assert asker.broker.context.offsets.query("End", "T", 0) == 3
            await fill(asker, 1, queues=1, start=3)
            assert [m.body for m in await PoppingClient(asker, "End").pop(initMode=1)] == [b"3"]

    run_async(scenario())


def test_peek_and_notification(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            client = PoppingClient(asker)
            held = asyncio.ensure_future(
                client.ask(RequestCode.NOTIFICATION, queueId=-1, pollTime=60_000, bornTime=1)
            )
            await until(lambda: len(asker.broker.features.pop.pending) == 1)
            await fill(asker, 5)
            assert (await held).ext == {"hasMsg": "true", "pollingFull": "false"}
            for _ in range(2):
                peeked = await client.ask(RequestCode.PEEK_MESSAGE, queueId=-1, maxMsgNums=32)
                assert peeked.code == 0
                assert peeked.ext["msgOffsetInfo"].count(";") == 3
            assert len(await client.drain()) == 5
            peeked = await client.ask(RequestCode.PEEK_MESSAGE, queueId=-1, maxMsgNums=32)
            assert peeked.code == ResponseCode.PULL_NOT_FOUND
            nothing = await client.ask(RequestCode.NOTIFICATION, queueId=0, pollTime=0)
            assert nothing.ext["hasMsg"] == "false"

    run_async(scenario())


def test_a_queue_holds_back_what_is_too_much(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, popInflightMessageThreshold="10")
        async with running(config) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 15, queues=1)
            client = PoppingClient(asker)
            first = await client.pop()
            assert len(first) == 10
            held = asyncio.ensure_future(client.pop(pollTime=60_000))
            await until(lambda: len(asker.broker.features.pop.pending) == 1)
            assert await client.ack(first[4]) == 0
            assert [m.body for m in await held] == [b"10"]

    run_async(scenario())


def test_a_handle_that_a_producer_made_up_is_taken_out(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            text = f"UNIQ_KEY\x01{1:032X}\x02{POP_CK}\x010 1 2 3 0 broker-a 0 0\x02TAGS\x01A\x02"
            await asker.send("T", b"x", text)
            client = PoppingClient(asker)
            [message] = await client.pop()
            assert POP_CK not in message.record.properties
            assert message.record.properties["TAGS"] == "A"
            assert await client.ack(message) == 0

    run_async(scenario())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"queueId": 9}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -2}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": "x"}, ResponseCode.INVALID_PARAMETER),
        ({"initMode": 7}, ResponseCode.INVALID_PARAMETER),
        ({"order": "maybe"}, ResponseCode.INVALID_PARAMETER),
        ({"attemptId": "x" * 300}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"consumerGroup": "a b"}, ResponseCode.INVALID_PARAMETER),
        ({"expType": "GROOVY", "exp": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_wrong_pops(
    tmp_path: Path, run_async: Run, changes: dict[str, Any], code: ResponseCode
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            await fill(asker, 1)
            client = PoppingClient(asker)
            assert (await client.answer(**changes)).code == code
            assert len(await client.pop()) == 1

    run_async(scenario())


def test_a_stop_answers_held_pops(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            held = asyncio.ensure_future(PoppingClient(asker).answer(pollTime=60_000))
            await until(lambda: len(asker.broker.features.pop.pending) == 1)
            await asker.broker.stop()
            assert (await held).code == ResponseCode.POLLING_TIMEOUT

    run_async(scenario())
