"""TOPIC_ENDS and LOCAL_RANGE: requests of Spark's readers for each batch and each range."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.wire.bodies.local_range import (
    LocalRange,
    local_range_fields,
    parse_local_range,
)
from broker_core.errors import InvalidArgument
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


def test_a_range_and_its_files(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path)
        async with running(config) as asker:
            await asker.make_topic("T")
            await send(asker, 1, 7)
            answer = await asker.ask(RANGE, topic="T", queueId=1)
            found = parse_local_range(answer.ext)
            store = asker.broker.context.store
            assert (found.min_offset, found.max_offset) == (0, 7)
            layout = found.layout
            assert (layout.store_id, layout.epoch) == (store.store_id, store.epoch)
            assert Path(layout.directory) == Path(config.store_root)
            [units] = (Path(layout.directory) / "consumequeue" / "T" / "1").iterdir()
            # In the file although the queue was not flushed.
            assert len(units.read_bytes()[: 7 * 20].strip(b"\0")) > 6 * 20
            assert (await asker.ask(RequestCode.CAPABILITIES)).ext["localReads"] == "1"

    run_async(scenario())


def test_an_answer_that_makes_no_sense() -> None:
    good = {
        "directory": "/d", "storeId": "s", "epoch": "1", "bootId": "b", "segmentSize": "1024",
        "queueFileSize": "6000", "checkLevel": "2", "logStart": "0", "minOffset": "3",
        "maxOffset": "9",
    }  # fmt: skip
    parsed = parse_local_range(good)
    assert isinstance(parsed, LocalRange)
    assert local_range_fields(parsed) == good
    for name, bad in (
        ("directory", ""), ("epoch", "x"), ("segmentSize", "0"), ("checkLevel", "0"),
        ("maxOffset", "-1"), ("queueFileSize", str(1 << 60)),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            parse_local_range({**good, name: bad})
