"""TOPIC_ENDS and LOCAL_RANGE: requests of Spark's readers for each batch and each range."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.running_broker import broker_config, running
from tests.broker.send.test_processor import batch_item

Run = Callable[..., Any]
ENDS, RANGE = RequestCode.TOPIC_ENDS, RequestCode.LOCAL_RANGE


async def send(asker: Any, queue_id: int, count: int) -> None:
    body = b"".join(batch_item(b"%d" % n, b"") for n in range(count))
    answer = await asker.ask(
        RequestCode.BULK_SEND, body, topic="T", queueId=queue_id, producerGroup="P"
    )
    assert answer.code == 0, answer.remark


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_ends_are_durable_in_every_mode(tmp_path: Path, run_async: Run, flush: str) -> None:
    async def scenario() -> None:
        # Nothing is synced by itself for an hour.
        config = broker_config(
            tmp_path, flushDiskType=flush, flushIntervalCommitLog="3600000",
            flushCommitLogThoroughInterval="3600000",
        )  # fmt: skip
        async with running(config) as asker:
            await asker.make_topic("T")
            store = asker.broker.context.store
            for number in range(1, 4):
                await send(asker, 2, 5)
                answer = await asker.ask(ENDS, topic="T")
                ends = [int(text) for text in answer.ext["ends"].split(",")]
                assert ends[2] in (5 * number, store.offsets("T", 2)[1])
                assert store.durable_offset("T", 2) >= ends[2]
                assert store.flushed_position >= store.dispatched_position
            assert (answer.ext["storeId"], answer.ext["epoch"]) == (
                store.store_id,
                str(store.epoch),
            )
            assert ends[:2] == [0, 0]

    run_async(scenario())


def test_many_questions_share_a_sync(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            await send(asker, 0, 50)
            answers = await asyncio.gather(*(asker.ask(ENDS, topic="T") for _ in range(20)))
            assert {answer.ext["ends"].split(",")[0] for answer in answers} == {"50"}

    run_async(scenario())


def test_refusals(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            for code in (ENDS, RANGE):
                missing = await asker.ask(code, topic="nothing", queueId=0)
                assert missing.code == ResponseCode.TOPIC_NOT_EXIST
            await asker.make_topic("T")
            beyond = await asker.ask(RANGE, topic="T", queueId=5_000)
            assert beyond.code != 0

    run_async(scenario())
