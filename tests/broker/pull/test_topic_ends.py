"""TOPIC_ENDS and LOCAL_RANGE: requests of Spark's readers for each batch and each range."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.pull import topic_ends
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


def test_where_queues_differ_from_a_log_that_was_read(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            await send(asker, 0, 5)
            await send(asker, 1, 3)
            first = await asker.ask(ENDS, topic="T")
            await send(asker, 0, 2)
            await send(asker, 2, 4)
            second = await asker.ask(ENDS, topic="T")
            # A reader of a log that went on with another run after the first answer.
            at, number, _ = first.ext["run"].split(".")
            end = second.ext["run"].split(".")[0]
            run = f"{end}.{int(number) + 1}.other"
            runs = f"{first.ext['runs']},{int(number) + 1}.other.{at}"
            lacks = await asker.ask(ENDS, topic="T", run=run, runs=runs)
            assert lacks.ext["hasRun"] == "0"
            queues = len(lacks.ext["ends"].split(","))
            assert lacks.ext["same"].split(",") == ["5", "3", *["0"] * (queues - 2)]
            assert lacks.ext["ends"].split(",")[:3] == ["7", "3", "4"]
            # Nothing is said where nothing is known, or where nothing is lost.
            for unknown in ("", "nonsense", f"{int(number)}.stranger.0", "," * 1_000):
                answer = await asker.ask(ENDS, topic="T", run=run, runs=unknown)
                assert answer.ext["hasRun"] == "0"
                assert "same" not in answer.ext
            has = await asker.ask(ENDS, topic="T", run=first.ext["run"], runs=first.ext["runs"])
            assert has.ext["hasRun"] == "1"
            assert "same" not in has.ext
            monkeypatch.setattr(topic_ends, "COMPARED_QUEUES_MAX", queues - 1)
            many = await asker.ask(ENDS, topic="T", run=run, runs=runs)
            assert "same" not in many.ext

    run_async(scenario())
