"""Popped messages: acknowledgement, longer invisible time, retries, dead letters, invalid
handles."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.wire.pop_handle import ORDER_MARK, group_mark
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.pop.test_processor import fill
from tests.broker.popping_client import Popped, PoppingClient
from tests.broker.running_broker import Asker, broker_config, records, running, until
from tests.fakes.held_clock import StoppedClock

Run = Callable[..., Any]
GONE = ResponseCode.NO_MESSAGE
WRONG = ResponseCode.INVALID_PARAMETER


async def make_group(asker: Asker, name: str, **settings: Any) -> None:
    body = json.dumps({"groupName": name, **settings}).encode()
    assert (await asker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0


async def arrived(client: PoppingClient, **ext: Any) -> list[Popped]:
    """What comes next, however long it takes."""
    while True:
        found = await client.pop(pollTime=30_000, **ext)
        if found:
            return found


def test_what_is_not_acknowledged_in_time_comes_again(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        clock = StoppedClock()
        async with running(broker_config(tmp_path), clock=clock) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 4, queues=1)
            client = PoppingClient(asker)
            first = await client.pop(invisibleTime=200)
            assert await client.ack(first[1]) == 0
            assert asker.broker.context.offsets.query("G", "T", 0) == 0
            clock.advance(201)
            again = await arrived(client)
            while len(again) < 3:
                again += await arrived(client)
            assert sorted(m.body for m in again) == [b"0", b"2", b"3"]
            # Under the first topic, with the place of the retry in the handle.
            message = again[0]
            assert message.record.topic == "T"
            assert message.record.reconsume_times == 1
            assert message.handle.topic_type == "1"
            properties = message.record.properties
            assert properties["TAGS"] == "A"
            assert properties["1ST_POP_TIME"] == str(first[0].handle.pop_time_ms)
            assert properties["ORIGIN_MESSAGE_ID"] == first[0].record.message_id
            offsets = asker.broker.context.offsets
            await until(lambda: offsets.query("G", "T", 0) == 4)
            for message in again:
                assert await client.ack(message) == 0
            assert offsets.query("G", "%RETRY%G_T", 0) == 3
            # Late, and right all the same: the message is done in its queue.
            assert await client.ack(first[0]) == 0
            assert await client.pop() == []

    run_async(scenario())


def test_another_invisible_time_is_another_handle(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 2, queues=1)
            client = PoppingClient(asker)
            one, two = await client.pop(invisibleTime=60_000)
            later = await client.change(one, 120_000)
            assert isinstance(later, Popped)
            assert later.handle.pop_time_ms > one.handle.pop_time_ms
            assert await client.ack(one) == GONE
            assert await client.change(one, 10) == GONE
            assert await client.ack(later) == 0
            assert await client.change(later, 10) == GONE
            # Now means now.
            assert isinstance(await client.change(two, 0), Popped)
            [again] = await arrived(client)
            assert (again.body, again.record.reconsume_times) == (b"1", 1)
            # Retries have their times changed as well.
            changed = await client.change(again, 50)
            assert isinstance(changed, Popped)
            [third] = await arrived(client)
            assert (third.body, third.record.reconsume_times) == (b"1", 2)
            assert await client.ack(third) == 0

    run_async(scenario())


def test_after_enough_tries_a_message_is_a_dead_letter(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await make_group(asker, "G", retryMaxTimes=2)
            await fill(asker, 1, queues=1)
            client = PoppingClient(asker)
            for tried in range(3):
                [message] = await arrived(client, invisibleTime=30)
                assert message.record.reconsume_times == tried
            store = asker.broker.context.store
            await until(lambda: store.offsets("%DLQ%G", 0)[1] == 1)
            assert await client.pop() == []
            [dead] = records(await asker.pull("%DLQ%G"))
            assert (dead.body, dead.reconsume_times) == (b"0", 3)
            assert dead.properties["DLQ_ORIGIN_TOPIC"] == "T"
            offsets = asker.broker.context.offsets
            await until(lambda: offsets.query("G", "%RETRY%G_T", 0) == 2)

    run_async(scenario())


def test_batches_of_acknowledgements(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 12, queues=1)
            client = PoppingClient(asker)
            found = await client.pop()
            handle = found[0].handle
            ack = {
                "c": "G", "t": "T", "r": "0", "so": handle.start_offset, "q": 0, "rq": handle.mark,
                "pt": handle.pop_time_ms, "it": handle.invisible_ms,
                "b": base64.b64encode(bytes([0b1111_0111, 0b0000_0011])).decode(),
            }  # fmt: skip
            body = json.dumps({"brokerName": "broker-a", "acks": [ack]}).encode()
            answer = await asker.ask(RequestCode.BATCH_ACK_MESSAGE, body)
            assert answer.code == 0, answer.remark
            offsets = asker.broker.context.offsets
            assert offsets.query("G", "T", 0) == 3
            body = json.dumps({"brokerName": "broker-a", "acks": [{**ack, "b": [8]}]}).encode()
            assert (await asker.ask(RequestCode.BATCH_ACK_MESSAGE, body)).code == 0
            assert offsets.query("G", "T", 0) == 10
            for changes in (
                {"b": "no base64!"}, {"b": None}, {"b": [300]}, {"so": -1}, {"q": "0"}, {"rq": 1},
                {"c": "Other"}, {"b": [0, 0, 0, 1]},
            ):  # fmt: skip
                body = json.dumps({"brokerName": "", "acks": [{**ack, **changes}]}).encode()
                answer = await asker.ask(RequestCode.BATCH_ACK_MESSAGE, body)
                assert answer.code in (WRONG, GONE), changes
            body = json.dumps({"brokerName": "other", "acks": [ack]}).encode()
            assert (await asker.ask(RequestCode.BATCH_ACK_MESSAGE, body)).code == WRONG
            for garbage in (b"", b"[]", b"{", b'{"acks":[7]}', b'{"acks":{}}'):
                answer = await asker.ask(RequestCode.BATCH_ACK_MESSAGE, garbage)
                assert answer.code in (0, WRONG), garbage
            assert offsets.query("G", "T", 0) == 10

    run_async(scenario())


def changed(message: Popped, **changes: Any) -> Popped:
    return message._replace(handle=message.handle._replace(**changes))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"pop_time_ms": 1}, GONE),
        ({"broker_name": "other"}, WRONG),
        ({"mark": 0}, WRONG),
        ({"mark": group_mark("Other")}, WRONG),
        ({"queue_id": 9}, WRONG),
        ({"offset": 10**12}, GONE),
        ({"start_offset": "x"}, WRONG),
        ({"invisible_ms": -1}, WRONG),
        ({"topic_type": "1"}, ResponseCode.TOPIC_NOT_EXIST),
    ],
)
def test_wrong_handles(
    tmp_path: Path, run_async: Run, changes: dict[str, Any], code: ResponseCode
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            await fill(asker, 1)
            client = PoppingClient(asker)
            [message] = await client.pop()
            wrong = changed(message, **changes)
            assert await client.ack(wrong) == code
            assert await client.change(wrong, 1000) == code
            assert await client.ack(message) == 0

    run_async(scenario())


@pytest.mark.parametrize(
    "text", ["", " ", "0 1 2", "a b c d e f g h", "0 1 2 3 0 broker-a 0", "9" * 2000]
)
def test_texts_that_are_no_handles(tmp_path: Path, run_async: Run, text: str) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            await fill(asker, 1)
            client = PoppingClient(asker)
            [message] = await client.pop()
            assert await client.ack(message, extraInfo=text) == WRONG
            assert await client.ack(message, offset=7) == WRONG
            assert await client.ack(message) == 0

    run_async(scenario())


def test_a_group_acknowledges_nothing_of_another(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 3, queues=1)
            client, other = PoppingClient(asker), PoppingClient(asker, "Other")
            messages = await client.pop()
            # A group that has not popped here has nothing to acknowledge, with any mark.
            for mark in (messages[0].handle.mark, group_mark("Other"), ORDER_MARK):
                assert await other.ack(changed(messages[0], mark=mark)) != 0
            assert len(await other.pop()) == 3
            assert await other.ack(messages[0]) == WRONG
            assert asker.broker.context.offsets.query("Other", "T", 0) == 0

    run_async(scenario())


def test_groups_that_share_a_retry_topic_get_their_own(tmp_path: Path, run_async: Run) -> None:
    """`a` with `b_c` and `a_b` with `c` have the same name for it."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("b_c", queues=1)
            await asker.make_topic("c", queues=1)
            await fill(asker, 1, "b_c", queues=1)
            await fill(asker, 1, "c", queues=1, start=1)
            one, two = PoppingClient(asker, "a", "b_c"), PoppingClient(asker, "a_b", "c")
            for client in (one, two):
                assert len(await client.pop(invisibleTime=30)) == 1
            store = asker.broker.context.store
            await until(lambda: store.offsets("%RETRY%a_b_c", 0)[1] == 2)
            for client, body in ((one, b"0"), (two, b"1")):
                [message] = await client.pop()
                assert (message.body, message.record.topic) == (body, client.topic)
                assert await client.ack(message) == 0
                assert await client.pop() == []

    run_async(scenario())


def test_a_message_that_cannot_be_copied_is_delivered_from_its_queue_again(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        clock = StoppedClock()
        async with running(broker_config(tmp_path, topicsMax="20"), clock=clock) as asker:
            await asker.make_topic("T", queues=1)
            asker.broker.context.topics._topics_max = 1  # type: ignore[attr-defined]
            await fill(asker, 2, queues=1)
            client = PoppingClient(asker)
            first = await client.pop(invisibleTime=50)
            assert await client.ack(first[0]) == 0
            clock.advance(51)
            [again] = await arrived(client)
            assert (again.body, again.record.topic, again.handle.topic_type) == (b"1", "T", "0")
            assert again.handle.pop_time_ms > first[1].handle.pop_time_ms
            assert await client.ack(first[1]) == GONE
            assert await client.ack(again) == 0
            assert asker.broker.context.offsets.query("G", "T", 0) == 2

    run_async(scenario())
