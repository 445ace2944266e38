"""Pulls over real sockets: every status, held pulls, filters, and permissions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.pull.processor import PullMessageProcessor
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from broker_core.codec.wire.remoting_command import BINARY_HEADER
from broker_core.protocol_codes import ResponseCode
from broker_core.store.writes.message import Message
from tests.broker.running_broker import Asker, broker_config, records, running, until
from tests.patient_client import patient_client

Run = Callable[..., Any]
HELD = {"sysFlag": 6, "suspendTimeoutMillis": 8_000}
FOUND, NOTHING, RETRY, MOVED = 0, 19, 20, 21


def bounds(answer: Any) -> tuple[int, int, int]:
    ext = answer.ext
    return int(ext["nextBeginOffset"]), int(ext["minOffset"]), int(ext["maxOffset"])


async def fill(asker: Asker, count: int, tags: str = "A", topic: str = "T") -> None:
    for number in range(count):
        text = f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01{tags}\x02"
        assert (await asker.send(topic, b"%d" % number, text)).code == 0


def test_statuses(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            empty = await asker.pull(offset=0)
            assert (empty.code, bounds(empty)) == (NOTHING, (0, 0, 0))
            assert (await asker.pull(offset=7)).code == MOVED
            assert bounds(await asker.pull(offset=7)) == (0, 0, 0)
            await fill(asker, 40)
            found = await asker.pull(maxMsgNums=5)
            assert (found.code, bounds(found)) == (FOUND, (5, 0, 40))
            assert [m.body for m in records(found)] == [b"%d" % n for n in range(5)]
            assert found.ext["suggestWhichBrokerId"] == "0"
            # RocketMQ's limit per answer, independent of the requested number.
            assert bounds(await asker.pull(maxMsgNums=1000))[0] == 32
            end = await asker.pull(offset=40)
            assert (end.code, bounds(end)) == (NOTHING, (40, 0, 40))
            beyond = await asker.pull(offset=41)
            assert (beyond.code, bounds(beyond)) == (MOVED, (40, 0, 40))
            negative = await asker.pull(offset=-3)
            assert (negative.code, bounds(negative)) == (MOVED, (0, 0, 40))
            other = await asker.pull(subscription="B || C")
            assert (other.code, bounds(other)) == (RETRY, (40, 0, 40))
            binary = await asker.pull(offset=38, serialize_type=BINARY_HEADER)
            assert (binary.code, len(records(binary))) == (FOUND, 2)
            lite = await asker.pull(offset=39, code=361, sysFlag=20)
            assert len(records(lite)) == 1

    run_async(scenario())


def test_a_message_wakes_a_held_pull(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await fill(asker, 1)
            held = [asyncio.ensure_future(asker.pull(offset=1, **HELD)) for _ in range(3)]
            other_queue = asyncio.ensure_future(asker.pull(queue=1, offset=0, **HELD))
            pending = asker.broker.features.pull.pending
            await until(lambda: len(pending) == 4)
            await asker.send(body=b"news")
            for answer in await asyncio.gather(*held):
                assert (answer.code, bounds(answer)[0]) == (FOUND, 2)
                assert records(answer)[0].body == b"news"
            assert not other_queue.done()
            await asker.send(body=b"other", e=1)
            assert (await other_queue).code == FOUND
            assert len(pending) == 0

    run_async(scenario())


def test_only_a_matching_message_wakes_a_filtered_pull(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await fill(asker, 2)
            held = asyncio.ensure_future(asker.pull(offset=2, subscription="B", **HELD))
            await until(lambda: len(asker.broker.features.pull.pending) == 1)
            await fill(asker, 5)
            assert not held.done()
            assert len(asker.broker.features.pull.pending) == 1
            await fill(asker, 1, tags="B")
            answer = await held
            assert (answer.code, bounds(answer)[0], len(records(answer))) == (FOUND, 8, 1)
            assert records(answer)[0].properties["TAGS"] == "B"

    run_async(scenario())


def test_a_held_pull_ends_in_time_and_remembers_what_it_passed(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await fill(asker, 1)
            held = asyncio.ensure_future(
                asker.pull(offset=1, subscription="B", sysFlag=6, suspendTimeoutMillis=300)
            )
            await until(lambda: len(asker.broker.features.pull.pending) == 1)
            await fill(asker, 3)
            answer = await held
            assert answer.code == NOTHING
            assert bounds(answer) == (4, 0, 4)

    run_async(scenario())


@pytest.mark.parametrize("end", ["deadline", "stop"])
def test_a_held_pull_whose_last_read_finds_a_message_is_answered_once(
    end: str, tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That read dispatches the message, and its arrival wakes the pull that reads."""

    async def scenario() -> None:
        config = broker_config(tmp_path, flushDiskType="ASYNC_FLUSH")
        async with running(config) as asker:
            await fill(asker, 1)
            pending = asker.broker.features.pull.pending
            answers: list[int] = []
            answer = PullMessageProcessor._answer

            def counted(self: Any, connection: Any, command: Any, *rest: Any) -> None:
                answers.append(command.opaque)
                answer(self, connection, command, *rest)

            monkeypatch.setattr(PullMessageProcessor, "_answer", counted)
            held = [asyncio.ensure_future(asker.pull(offset=1, **HELD)) for _ in range(3)]
            await until(lambda: len(pending) == 3)
            asker.broker.context.store.append(Message("T", b"news"))
            if end == "stop":
                pending.release_all()
            else:
                monkeypatch.setattr(pending._held.deadlines._clock, "monotonic", lambda: math.inf)
                pending._held.deadlines.expire()
                monkeypatch.undo()
            assert sorted(answers) == sorted(set(answers))
            assert len(pending) == 0
            for found in await asyncio.gather(*held):
                assert [message.body for message in records(found)] == [b"news"]

    run_async(scenario())


def test_without_long_polling_a_pull_is_held_briefly(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, longPollingEnable="false", shortPollingTimeMills="50")
        async with running(config) as asker:
            await fill(asker, 1)
            assert (await asker.pull(offset=1, **HELD)).code == NOTHING

    run_async(scenario())


def test_pulls_of_a_lost_connection_are_dropped(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await fill(asker, 1)
            pending = asker.broker.features.pull.pending
            stranger = Asker(asker.broker, patient_client())
            lost = [asyncio.ensure_future(stranger.pull(offset=1, **HELD)) for _ in range(5)]
            mine = asyncio.ensure_future(asker.pull(offset=1, **HELD))
            await until(lambda: len(pending) == 6)
            await stranger.client.close()
            await until(lambda: len(pending) == 1)
            await asyncio.gather(*lost, return_exceptions=True)
            await asker.send()
            assert (await mine).code == FOUND

    run_async(scenario())


def test_a_stopping_broker_answers_what_it_holds(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await fill(asker, 1)
            held = asyncio.ensure_future(asker.pull(offset=1, **HELD))
            await until(lambda: len(asker.broker.features.pull.pending))
            await asker.broker.stop()
            assert (await held).code == NOTHING

    run_async(scenario())


def test_the_commit_bit_commits(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await fill(asker, 9)
            await asker.pull(offset=3, sysFlag=5, commitOffset=3)
            offsets = asker.broker.context.offsets
            assert offsets.query("CG", "T", 0) == 3
            await asker.pull(offset=3, sysFlag=4, commitOffset=8)
            assert offsets.query("CG", "T", 0) == 3
            # A commit behind what is stored is a late one, not a wish to go back.
            await asker.pull(offset=3, sysFlag=5, commitOffset=2)
            assert offsets.query("CG", "T", 0) == 3
            offsets.reset("CG", "T", 0, 1, until_pulled=True)
            moved = await asker.pull(offset=5, sysFlag=5, commitOffset=5)
            assert (moved.code, bounds(moved)) == (MOVED, (1, 0, 9))
            assert offsets.query("CG", "T", 0) == 1

    run_async(scenario())


def test_registered_subscriptions(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await fill(asker, 2, tags="A")
            await fill(asker, 1, tags="B")
            by_group = {"sysFlag": 0, "subVersion": 7}
            assert (await asker.pull(**by_group)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
            subscription = parse_tag_expression("T", "B", 7)
            consumer = ConsumerData(
                "CG", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET",
                (subscription,), False,
            )  # fmt: skip
            beat = encode_heartbeat(HeartbeatData("me", (), (consumer,)))
            assert (await asker.ask(34, beat)).code == 0
            answer = await asker.pull(**by_group)
            assert [m.properties["TAGS"] for m in records(answer)] == ["B"]
            newer = await asker.pull(sysFlag=0, subVersion=8)
            assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST

    run_async(scenario())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "WriteOnly"}, ResponseCode.NO_PERMISSION),
        ({"consumerGroup": "stranger"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"consumerGroup": "disabled"}, ResponseCode.NO_PERMISSION),
        ({"consumerGroup": ""}, ResponseCode.INVALID_PARAMETER),
        ({"queue": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queue": -1}, ResponseCode.INVALID_PARAMETER),
        ({"offset": "x"}, ResponseCode.INVALID_PARAMETER),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expressionType": "SQL92", "subscription": "a > 1"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_refusals(
    tmp_path: Path, run_async: Run, fields: dict[str, Any], code: ResponseCode
) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, autoCreateSubscriptionGroup="false")
        async with running(config) as asker:
            await asker.make_topic("T")
            await asker.make_topic("WriteOnly", perm=2)
            for group in (b'{"groupName":"CG"}',
                          b'{"groupName":"disabled","consumeEnable":false}'):  # fmt: skip
                assert (await asker.ask(200, group)).code == 0
            answer = await asker.pull(**fields)
            assert (answer.code, bool(answer.remark)) == (code, True)
            assert (await asker.pull()).code == NOTHING

    run_async(scenario())
