"""Messages that expired before they were read: loss, or what is left, as the option says."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core import MessageQueue, SyncAdmin
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.data_loss import DataLost
from pyspark_rmq.source.offsets.offset_planning import QueueRange, ranges_between
from pyspark_rmq.source.offsets.stream_position import StreamOffset
from pyspark_rmq.source.rows.range_reader import Task, read_task
from pyspark_rmq.source.stream_session import Limits, StreamSession

COUNT = 400
QUEUE = MessageQueue("t", "broker-a", 0)
CLEANING = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "fileReservedTime": "1",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": "100",
}


@pytest.fixture(scope="module")
def expired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedBroker, int]]:
    """A broker that deleted its oldest messages, and the first offset that is left."""
    store = tmp_path_factory.mktemp("retention") / "store"
    with EmbeddedBroker(store=store, topics={"t": 1}, properties=CLEANING) as broker:
        for _ in range(10):
            broker.produce("t", [os.urandom(10_000) for _ in range(COUNT // 10)], tags="A")
        old = sorted(Path(store, "commitlog").iterdir())[:2]
        for path in old:
            os.utime(path, (0, 0))
        yield broker, _first_offset(broker, old)
    connections.close_connections()


def _first_offset(broker: EmbeddedBroker, old: list[Path]) -> int:
    """What is left when both are gone; they may go one after the other."""

    async def poll(admin: SyncAdmin) -> int:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for _ in range(6_000):
            if not any(path.exists() for path in old):
                return await admin.asynchronous.min_offset(QUEUE)
            await asyncio.wait((never,), timeout=0.05)
        raise AssertionError("nothing was deleted")

    with SyncAdmin(broker.name_server) as admin:
        first = admin.call(poll(admin))
    assert 0 < first < COUNT
    return first


def rows(broker: EmbeddedBroker, start: int, until: int, **more: str) -> list[int]:
    options = SourceOptions.parse({**broker.options, "subscribe": "t", **more}).for_stream()
    task = Task((QueueRange(*QUEUE, start, until),), {})
    batches = read_task(task, options, (ChosenColumn("offset", "offset"),))
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


@pytest.mark.parametrize("tags", ["*", "A"])
def test_a_range_that_is_partly_gone(expired: tuple[EmbeddedBroker, int], tags: str) -> None:
    broker, first = expired
    with pytest.raises(DataLost, match=rf"from offset 0 to {COUNT}, and has {first} to") as failure:
        rows(broker, 0, COUNT, tags=tags)
    assert "fileReservedTime" in str(failure.value)
    found = rows(broker, 0, COUNT, tags=tags, failOnDataLoss="false")
    assert found == list(range(first, COUNT))


def test_a_range_that_is_wholly_gone(expired: tuple[EmbeddedBroker, int]) -> None:
    broker, first = expired
    with pytest.raises(DataLost):
        rows(broker, 0, first)
    assert rows(broker, 0, first, failOnDataLoss="false") == []


def test_a_range_that_is_still_there(expired: tuple[EmbeddedBroker, int]) -> None:
    broker, first = expired
    assert rows(broker, first, COUNT) == list(range(first, COUNT))


@pytest.mark.parametrize("is_available_now", [True, False])
def test_a_stream_steps_over_what_is_gone_at_once(
    expired: tuple[EmbeddedBroker, int],
    is_available_now: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not in one empty batch after the other, and the number is reported once."""
    broker, first = expired
    given = {**broker.options, "subscribe": "t", "failOnDataLoss": "false"}
    options = SourceOptions.parse(given).for_stream()
    connected = connections.connect(options.connection)
    session = StreamSession(connected.client, options)
    if is_available_now:
        session.fix_target()
    position = start = StreamOffset({QUEUE: 0})
    seen: list[int] = []
    with caplog.at_level(logging.WARNING):
        while position.queues[QUEUE] < COUNT:
            end = connected.call(session.latest(position, Limits(rows=50), may_wait=False))
            end = StreamOffset.from_json(json.loads(json.dumps(end.to_json())))
            [part] = ranges_between(position, end)
            assert part.rows <= 50
            seen += rows(broker, part.start, part.until, failOnDataLoss="false")
            position = end
            assert len(seen) == position.queues[QUEUE] - first
    assert seen == list(range(first, COUNT))
    lost = [text for text in caplog.messages if "deleted" in text]
    assert len(lost) == 1
    assert f"{first} messages were deleted before they were read: offsets 0 to {first}" in lost[0]
    # Without failOnDataLoss=false the first batch has what is gone, and its task fails.
    strict = SourceOptions.parse({**given, "failOnDataLoss": "true"}).for_stream()
    session = StreamSession(connected.client, strict)
    end = connected.call(session.latest(start, Limits(rows=50), may_wait=False))
    assert [(part.start, part.until) for part in ranges_between(start, end)] == [(0, 50)]


@pytest.mark.parametrize("rows_max", [1, 2, None])
def test_what_is_gone_of_a_queue_that_has_no_turn(
    expired: tuple[EmbeddedBroker, int], rows_max: int | None
) -> None:
    """With fewer rows than queues: its range in the next batch begins where messages begin."""
    broker, first = expired
    broker.create_topics({"u": 1})
    broker.produce("u", [b"x"] * 3)
    other = MessageQueue("u", "broker-a", 0)
    given = {**broker.options, "subscribe": "t,u", "failOnDataLoss": "false"}
    options = SourceOptions.parse(given).for_stream()
    connected = connections.connect(options.connection)
    session = StreamSession(connected.client, options)
    position = StreamOffset({QUEUE: 0, other: 0})
    for _ in range(3):
        end = connected.call(session.latest(position, Limits(rows=rows_max), may_wait=False))
        read = [part for part in ranges_between(position, end) if part.queue == QUEUE]
        assert all(part.start >= first for part in read)
        assert rows_max is None or sum(p.rows for p in ranges_between(position, end)) <= rows_max
        position = end
    assert position.queues[QUEUE] > first or rows_max == 1
