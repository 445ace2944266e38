"""SQL92 subscriptions over real sockets: carried, registered, held, broken, and switched off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.codec.records.message_properties import encode_properties
from broker_core.codec.sql.tokens import SQL_SIZE_MAX
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.protocol_codes import ResponseCode
from tests.broker.running_broker import Asker, broker_config, records, running, until

Run = Callable[..., Any]
FOUND, NOTHING, RETRY = 0, 19, 20
SQL: dict[str, Any] = {"expressionType": "SQL92"}
HELD: dict[str, Any] = {"sysFlag": 6, "suspendTimeoutMillis": 8_000, **SQL}
REGISTERED: dict[str, Any] = {"sysFlag": 0, "subscription": "", "subVersion": 1}


def filtering(root: Path, **properties: str) -> BrokerConfig:
    return broker_config(root, enablePropertyFilter="true", **properties)


async def send(asker: Asker, body: bytes = b"body", **properties: str) -> None:
    text = encode_properties({"UNIQ_KEY": "0" * 32, "TAGS": "A", **properties}).decode()
    assert (await asker.send(body=body, text=text)).code == 0


async def subscribe(asker: Asker, expression: str, version: int = 1) -> None:
    subscription = SubscriptionData("T", expression, version=version, expression_type="SQL92")
    consumer = ConsumerData(
        "CG", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", (subscription,), False
    )
    beat = encode_heartbeat(HeartbeatData("me", (), (consumer,)))
    assert (await asker.ask(34, beat)).code == 0


def next_of(answer: Any) -> int:
    return int(answer.ext["nextBeginOffset"])


def texts(answer: Any) -> list[bytes]:
    return [message.body for message in records(answer)]


async def check(asker: Asker, expression: str, kind: str = "SQL92") -> Any:
    subscription = {"topic": "T", "subString": expression, "expressionType": kind}
    body = {"clientId": "me", "group": "CG", "subscriptionData": subscription}
    return await asker.ask(46, json.dumps(body).encode())


def test_a_pull_that_carries_its_expression(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(filtering(tmp_path)) as asker:
            for number in range(50):
                await send(asker, b"%d" % number, price=str(number))
            found = await asker.pull(subscription="price >= 10 AND price < 13", **SQL)
            assert (found.code, texts(found), next_of(found)) == (FOUND, [b"10", b"11", b"12"], 50)
            few = await asker.pull(subscription="price >= 10", maxMsgNums=2, **SQL)
            assert (texts(few), next_of(few)) == ([b"10", b"11"], 12)
            none = await asker.pull(subscription="price > 99", **SQL)
            assert (none.code, next_of(none)) == (RETRY, 50)
            # Properties of the message decide, tags among them; TAG expressions go by hash.
            assert len(texts(await asker.pull(subscription="TAGS = 'A'", **SQL))) == 32
            assert (await asker.pull(subscription="TAGS = 'B'", **SQL)).code == RETRY
            lite = await asker.pull(subscription="price = 49", code=361, sysFlag=20, **SQL)
            assert texts(lite) == [b"49"]

    run_async(scenario())


def test_only_a_matching_message_wakes_a_held_pull(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(filtering(tmp_path)) as asker:
            await send(asker)
            held = asyncio.ensure_future(asker.pull(offset=1, subscription="a > 5", **HELD))
            await until(lambda: len(asker.broker.features.pull.pending) == 1)
            for value in ("1", "5", "x"):
                await send(asker, a=value)
            await send(asker)
            assert not held.done()
            await send(asker, b"news", a="6")
            answer = await held
            assert (answer.code, texts(answer), next_of(answer)) == (FOUND, [b"news"], 6)

    run_async(scenario())


def test_a_held_pull_ends_in_time_behind_what_it_passed(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(filtering(tmp_path)) as asker:
            await send(asker)
            waiting = {**HELD, "suspendTimeoutMillis": 300}
            held = asyncio.ensure_future(asker.pull(offset=1, subscription="a = 1", **waiting))
            await until(lambda: len(asker.broker.features.pull.pending) == 1)
            await send(asker)
            answer = await held
            assert (answer.code, next_of(answer)) == (NOTHING, 2)

    run_async(scenario())


def test_a_registered_expression(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(filtering(tmp_path)) as asker:
            await send(asker, b"one", a="1")
            await send(asker, b"two", a="2")
            await subscribe(asker, "a = 2")
            assert texts(await asker.pull(**REGISTERED)) == [b"two"]
            # Go always sends type TAG.
            assert texts(await asker.pull(**REGISTERED, expressionType="TAG")) == [b"two"]
            go = await asker.pull(sysFlag=4, subscription="a = 2", expressionType="TAG")
            assert texts(go) == [b"two"]
            # Another text with the type TAG is one of tags.
            assert texts(await asker.pull(subscription="A", expressionType="TAG")) == [
                b"one", b"two",
            ]  # fmt: skip
            await subscribe(asker, "a = 1", version=2)
            assert texts(await asker.pull(**REGISTERED)) == [b"one"]
            newer = await asker.pull(**{**REGISTERED, "subVersion": 3})
            assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST

    run_async(scenario())


def test_broken_expressions(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(filtering(tmp_path)) as asker:
            await send(asker, a="1")
            carried = await asker.pull(subscription="a >", **SQL)
            assert carried.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert "at its end" in carried.remark
            empty = await asker.pull(subscription="", **SQL)
            assert empty.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            checked = await check(asker, "a >")
            assert checked.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert "at its end" in checked.remark
            assert (await check(asker, "a > 1")).code == 0
            # The heartbeat is taken, since others share it; its pulls say what is wrong.
            await subscribe(asker, "a >")
            registered = await asker.pull(**REGISTERED)
            assert registered.code == ResponseCode.FILTER_DATA_NOT_EXIST
            assert "at its end" in registered.remark
            unknown = await asker.pull(subscription="x", expressionType="LUA")
            assert unknown.code == ResponseCode.SYSTEM_ERROR
            assert (await check(asker, "x", "LUA")).code == ResponseCode.SYSTEM_ERROR
            huge = await asker.pull(subscription="a" * (SQL_SIZE_MAX + 1), **SQL)
            assert huge.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert (await asker.pull()).code == FOUND

    run_async(scenario())


@pytest.mark.parametrize("fields", [{"subscription": "a = 1", **SQL}, REGISTERED])
def test_a_broker_that_does_not_filter(
    tmp_path: Path, run_async: Run, fields: dict[str, Any]
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await send(asker, a="1")
            await subscribe(asker, "a = 1")
            answer = await asker.pull(**fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "enablePropertyFilter" in answer.remark
            assert (await check(asker, "a = 1")).code == ResponseCode.SYSTEM_ERROR

    run_async(scenario())


def test_a_long_way_to_the_next_match(tmp_path: Path, run_async: Run) -> None:
    """One answer looks at 800 entries at most; the client goes on from there."""

    async def scenario() -> None:
        async with running(filtering(tmp_path)) as asker:
            sends = [send(asker, a="1") for _ in range(1_000)]
            for start in range(0, len(sends), 50):
                await asyncio.gather(*sends[start : start + 50])
            await send(asker, b"last", a="2")
            offset, answers = 0, 0
            while True:
                answer = await asker.pull(offset=offset, subscription="a = 2", **HELD)
                answers += 1
                offset = next_of(answer)
                if answer.code == FOUND:
                    break
                assert answer.code == RETRY
            assert (texts(answer), offset, answers) == ([b"last"], 1_001, 2)

    run_async(scenario())
