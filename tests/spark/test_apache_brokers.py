"""The core of the source against Apache RocketMQ's own brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer
from tests.interop.clusters import EVERY_APACHE_KIND, cluster, run_or_skip
from tests.spark.stream_runs import StreamRuns

pytest.importorskip("pyspark")

TOPIC = "orders"
COUNT = 1_500


@pytest.mark.parametrize("kind", EVERY_APACHE_KIND)
def test_reads(spark: Any, run_async: Callable[..., Any], kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(kind, tmp_path / "cluster") as found:
            # Spark waits in its own way, and the name server is in this loop.
            await asyncio.to_thread(_read_all, spark, found.name_server, tmp_path / "checkpoint")

    run_or_skip(run_async, scenario())


def _read_all(spark: Any, name_server: str, checkpoint: Path) -> None:
    options = {"rmq.namesrv.addr": name_server, "subscribe": TOPIC}
    with SyncAdmin(name_server) as admin:
        admin.create_topic(TOPIC, queue_count=4)
    _send(name_server, 0, COUNT)
    _batch(spark, options)
    _stream(spark, name_server, options, checkpoint)


def _send(name_server: str, first: int, until: int) -> None:
    with SyncProducer(name_server, timeout_ms=30_000) as producer:
        sent = [
            producer.send_async(
                OutgoingMessage(TOPIC, f"m{n}".encode(), "AB"[n % 2], f"k{n}", {"number": str(n)}),
                queue=MessageQueue(TOPIC, "broker-a", n % 4),
            )
            for n in range(first, until)
        ]
        for result in sent:
            result.result(timeout=120)


def _batch(spark: Any, options: dict[str, str]) -> None:
    def read(**more: str) -> Any:
        return spark.read.format("rmq").options(**options).options(**more).load()

    rows = read(includeProperties="true").collect()
    assert sorted(int(row.properties["number"]) for row in rows) == list(range(COUNT))
    for row in rows:
        number = row.properties["number"]
        assert (bytes(row.value), row.key) == (f"m{number}".encode(), f"k{number}")
        assert row.tags == "AB"[int(number) % 2]
        assert row.partition == int(number) % 4
        assert set(row.properties) == {"number"}
    per_queue = {row.partition: 0 for row in rows}
    for row in rows:
        assert row.offset == per_queue[row.partition]
        per_queue[row.partition] += 1
    assert {row.tags for row in read(tags="A").collect()} == {"A"}
    assert read(tags="A").count() == COUNT // 2
    assert read(startingOffsets="latest-10").count() == 40
    assert read(startingTimestamp="1000", minPartitions="3").count() == COUNT
    assert read(startingOffsets="-1h").count() == COUNT
    last = max(row.timestamp for row in rows)
    after = str(int(last.timestamp() * 1000) + 60_000)
    lax = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(startingTimestamp=after, **lax).count() == 0


def _stream(spark: Any, name_server: str, options: dict[str, str], checkpoint: Path) -> None:
    more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "800", "rmq.group": "readers"}
    runs = StreamRuns(spark, checkpoint, {**options, **more}, "value BINARY")
    runs.run()
    assert runs.sizes == [800, 700]
    with SyncAdmin(name_server) as admin:
        assert set(admin.committed_offsets("readers", TOPIC).values()) == {COUNT // 4}
        admin.create_topic(TOPIC, queue_count=6)
    _send(name_server, COUNT, COUNT + 50)
    with SyncProducer(name_server, timeout_ms=30_000) as producer:
        message = OutgoingMessage(TOPIC, f"m{COUNT + 50}".encode())
        producer.send(message, queue=MessageQueue(TOPIC, "broker-a", 5))
    runs.run()
    assert sorted(runs.values) == sorted(f"m{n}" for n in range(COUNT + 51))
