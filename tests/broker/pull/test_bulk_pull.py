"""Our own bulk requests: megabytes at once, the same rules as the ordinary ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.running_broker import broker_config, records, running, until
from tests.broker.send.test_processor import batch_item

Run = Callable[..., Any]
SEND, PULL = RequestCode.BULK_SEND, RequestCode.BULK_PULL


def test_much_more_than_one_message_may_be(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, mappedFileSizeCommitLog=str(4 << 20))
        async with running(config) as asker:
            await asker.make_topic("T")
            count = 30_000
            body = b"".join(batch_item(b"%0100d" % n, b"KEYS\x01k%d\x02" % n) for n in range(count))
            assert len(body) > 4_000_000
            answer = await asker.ask(SEND, body, topic="T", queueId=2, producerGroup="P")
            assert answer.code == 0, answer.remark
            assert (answer.ext["queueId"], answer.ext["queueOffset"], answer.ext["count"]) == (
                "2", "0", str(count),
            )  # fmt: skip
            offset, sizes = 0, []
            while offset < count:
                found = await asker.ask(
                    PULL, topic="T", queueId=2, offset=offset, maxBytes=1 << 20,
                    suspendTimeoutMillis=5_000,
                )  # fmt: skip
                assert found.code == 0
                sizes.append(len(found.body))
                for message in records(found):
                    assert message.body == b"%0100d" % offset
                    assert message.properties["KEYS"] == f"k{offset}"
                    offset += 1
                assert offset == int(found.ext["nextBeginOffset"])
            assert max(sizes) <= 1 << 20
            assert len(sizes) < 10
            few = await asker.ask(PULL, topic="T", queueId=2, offset=5, maxCount=3)
            assert [m.queue_offset for m in records(few)] == [5, 6, 7]

    run_async(scenario())


def test_the_rules_of_ordinary_requests_hold(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, autoCreateTopicEnable="false")) as asker:
            await asker.make_topic("T")
            asker.broker.context.groups.find_or_create("g")
            good = batch_item(b"x")
            for fields, code in (
                ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
                ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
                ({"topic": "../T"}, ResponseCode.INVALID_PARAMETER),
                ({"topic": "%RETRY%g"}, ResponseCode.MESSAGE_ILLEGAL),
                ({"topic": "T", "queueId": 9}, ResponseCode.INVALID_PARAMETER),
            ):
                answer = await asker.ask(SEND, good, producerGroup="P", **fields)
                assert answer.code == code
            broken = await asker.ask(SEND, good + b"?", producerGroup="P", topic="T")
            assert broken.code == ResponseCode.MESSAGE_ILLEGAL
            nothing = await asker.ask(PULL, topic="Nowhere", queueId=0, offset=0)
            assert nothing.code == ResponseCode.TOPIC_NOT_EXIST
            beyond = await asker.ask(PULL, topic="T", queueId=0, offset=9)
            assert beyond.code == ResponseCode.PULL_OFFSET_MOVED

    run_async(scenario())


def test_a_bulk_pull_is_held_like_others(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, flushDiskType="SYNC_FLUSH")) as asker:
            await asker.make_topic("T")
            held = asyncio.ensure_future(
                asker.ask(PULL, topic="T", queueId=0, offset=0, suspendTimeoutMillis=8_000)
            )
            await until(lambda: len(asker.broker.features.pull.pending))
            answer = await asker.ask(
                SEND, batch_item(b"x") + batch_item(b"y"), topic="T", queueId=0, producerGroup="P"
            )
            assert answer.code == 0
            assert [m.body for m in records(await held)] == [b"x", b"y"]

    run_async(scenario())
