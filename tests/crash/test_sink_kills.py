"""Real brokers killed with SIGKILL between the requests of a sink, and in the middle of them.

The writer does what Spark does: when anything fails, a new run stages the same batch again and
publishes it under the same number. Afterwards every batch must be there exactly once, whole.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter

import pytest

from broker_core import EmbeddedBroker
from broker_core.client.connection.config import ClientConfig
from broker_core.client.sink.client import SinkClient
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.staged_block import StagedPart
from broker_core.errors import RmqError, StagingRefused
from tests.broker.sink_store import identity
from tests.codec.codec_backends import column
from tests.embedded.one_topic import bodies

pytestmark = pytest.mark.crash

NAME = "broker-a"
QUEUES = 3
ROWS = 200
POINTS = ("begun", "appended", "sealed", "publishing", "published", "repeated")


class Writer:
    """A driver with its tasks; `run` changes whenever it has to start over."""

    def __init__(self, broker: EmbeddedBroker, sync_flush: bool) -> None:
        self.broker = broker
        self.sync_flush = sync_flush
        self.run = 0
        self.kills = 0
        self.repeats = 0

    async def batch(self, number: int, point: str, delay_ms: float) -> None:
        """Write one batch; the broker is killed once, at `point`."""
        waiting = point
        while True:
            async with SinkClient(ClientConfig((self.broker.name_server,))) as sink:
                try:
                    await self._attempt(sink, number, waiting, delay_ms)
                except StagingRefused:
                    # Not sealed when the broker died: Spark runs the task again.
                    waiting = ""
                    self.run += 1
                else:
                    return

    async def _attempt(self, sink: SinkClient, number: int, point: str, delay_ms: float) -> None:
        who = identity(number, f"run-{self.run}")
        writers = [await sink.stage(who, NAME) for _ in range(QUEUES)]
        await self._maybe_kill(point, "begun")
        for queue_id, writer in enumerate(writers):
            rows = [f"{number}/{queue_id}/{n}".encode() for n in range(ROWS)]
            await writer.append(ColumnBatch(ROWS, ((b"T", queue_id),), None, column(*rows)))
        await self._maybe_kill(point, "appended")
        staged = [await writer.seal() for writer in writers]
        await self._maybe_kill(point, "sealed")
        await self._publish(sink, who, staged, point, delay_ms)
        await self._maybe_kill(point, "published")
        again = await sink.publish(who, staged)
        assert again.is_repeat
        sizes = {q: last - first for q, (first, last) in again.offsets[NAME]["T"].items()}
        assert sizes == dict.fromkeys(range(QUEUES), ROWS)
        await self._maybe_kill(point, "repeated")

    async def _publish(
        self, sink: SinkClient, who: object, staged: list[StagedPart], point: str, delay_ms: float
    ) -> None:
        publishing = asyncio.ensure_future(sink.publish(who, staged))  # type: ignore[arg-type]
        if point == "publishing":
            await asyncio.wait((publishing,), timeout=delay_ms / 1000)
            await self._kill()
        answer = await publishing
        self.repeats += answer.is_repeat

    async def _maybe_kill(self, point: str, here: str) -> None:
        if point == here:
            await self._kill()

    async def _kill(self) -> None:
        self.kills += 1
        os.kill(self.broker.process_id, signal.SIGKILL)
        await asyncio.to_thread(self.broker.restart)


@pytest.mark.parametrize("sync_flush", [False, True])
def test_every_batch_is_there_once(
    sync_flush: bool, long_run: bool, summary_lines: list[str]
) -> None:
    rng = random.Random(3)
    points = POINTS * 6 if long_run else POINTS
    with EmbeddedBroker(topics={"T": QUEUES}, sync_flush=sync_flush) as broker:
        writer = Writer(broker, sync_flush)

        async def write_all() -> None:
            for number, point in enumerate(points):
                await writer.batch(number, point, rng.uniform(0, 8))

        asyncio.run(write_all())
        found = Counter(bodies(broker.name_server, "T"))
        assert writer.kills == len(points)
        expected = {
            f"{b}/{q}/{n}".encode()
            for b in range(len(points))
            for q in range(QUEUES)
            for n in range(ROWS)
        }
        assert not expected - found.keys()
        assert not found.keys() - expected
        assert set(found.values()) == {1}
    summary_lines.append(f"sink, real kills: {writer.kills}, lost 0, duplicated 0")


def test_readers_of_a_killed_broker_see_whole_batches() -> None:
    """A reader that polls through kills finds multiples of a batch in every queue, always."""
    seen: set[tuple[int, ...]] = set()
    with EmbeddedBroker(topics={"T": QUEUES}) as broker:
        writer = Writer(broker, False)

        async def poll(stopped: asyncio.Event) -> None:
            while not stopped.is_set():
                try:
                    found = await asyncio.to_thread(bodies, broker.name_server, "T")
                except RmqError:
                    continue
                counts = Counter(body.split(b"/")[0] for body in found)
                seen.add(tuple(sorted(counts.values())))

        async def scenario() -> None:
            stopped = asyncio.Event()
            polling = asyncio.ensure_future(poll(stopped))
            for number, point in enumerate(("publishing", "published", "publishing")):
                await writer.batch(number, point, 2.0)
            # The last attempt, at the latest, finds a broker that is not killed.
            while not seen and not polling.done():
                await asyncio.wait((polling,), timeout=0.05)
            stopped.set()
            await polling

        asyncio.run(scenario())
    # Queues are read one after the other, so a batch may be cut at a queue, never inside one.
    assert all(count % ROWS == 0 for counts in seen for count in counts)
    assert seen
