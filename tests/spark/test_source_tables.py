"""`describe`, conditions and lag reports as Spark's users see them, and a large backlog."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import BulkProducer, MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.progress import QueryLag, lag_listener
from tests.spark.stream_runs import QUERY_LIMIT_S, StreamRuns, run_to_end

pytest.importorskip("pyspark")

# Five million in the nightly size.
BACKLOG = 5_000_000 if os.environ.get("RMQ_CRASH_LONG") else 200_000
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def fill(broker: EmbeddedBroker, topic: str, count: int) -> None:
    with SyncProducer(broker.name_server) as producer:
        for number in range(count):
            message = OutgoingMessage(topic, b"%d" % number, "AB"[number % 2], f"k{number}")
            producer.send(message, queue=MessageQueue(topic, "broker-a", number % 2))


def test_tables_about_the_cluster(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    fill(broker, topic, 10)
    group = f"group_{topic}"
    with SyncAdmin(broker.name_server) as admin:
        admin.create_group(group)
        admin.commit_offset(group, MessageQueue(topic, "broker-a", 0), 2)

    def table(kind: str, **more: str) -> Any:
        reader = spark.read.format("rmq").options(**broker.options).option("describe", kind)
        return reader.options(**more).load()

    queues = table("queues", subscribe=topic)
    assert sorted((r.partition, r.maxOffset) for r in queues.collect()) == [(0, 5), (1, 5)]
    assert queues.selectExpr("sum(messages)").collect()[0][0] == 10
    assert topic in {row.topic for row in table("topics").collect()}
    lag = table("lag", subscribe=topic, **{"rmq.group": group}).where("partition = 0")
    assert [(row.committedOffset, row.lag) for row in lag.collect()] == [(2, 3)]
    assert group in {row.group for row in table("groups").collect()}
    assert table("dlq", **{"rmq.group": group}).count() == 0
    chosen = spark.read.format("rmq").options(**broker.options).option("describe", "queues")
    assert chosen.schema("maxOffset BIGINT").load(topic).columns == ["maxOffset"]


def test_conditions(spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    fill(broker, topic, 40)

    def read(**options: str) -> Any:
        return spark.read.format("rmq").options(**broker.options).options(**options).load(topic)

    rows = read(where="tags = 'A' AND offset >= 15").collect()
    assert sorted(int(row.value) for row in rows) == [30, 32, 34, 36, 38]
    assert [int(row.value) for row in read(where="key = 'k7'").collect()] == [7]
    middle = sorted(row.timestamp for row in read().collect())[20]
    queries = [
        f"timestamp >= TIMESTAMP '{middle.isoformat()}' AND tags = 'B'",
        "key = 'k9'",
        "partition = 1 AND offset BETWEEN 3 AND 5",
        "partition IN (0, 5) AND (offset < 2 OR tags = 'B')",
        "value = CAST('12' AS BINARY)",
    ]
    expected = [sorted(bytes(r.value) for r in read().where(q).collect()) for q in queries]
    assert all(expected)
    spark.conf.set(PUSHDOWN, "true")
    try:
        for query, wanted in zip(queries, expected, strict=True):
            found = read(filterPushdown="true").where(query)
            assert sorted(bytes(row.value) for row in found.collect()) == wanted, query
    finally:
        spark.conf.unset(PUSHDOWN)
    # The setting is Spark's and off by default.
    assert read().where("key = 'k9'").count() == 1


def test_lag_reports(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    fill(broker, topic, 10)
    reports: list[QueryLag] = []
    come = threading.Event()

    def report(lag: QueryLag) -> None:
        if {queue.topic for queue in lag.queues} != {topic}:
            # Of a query of an earlier test: Spark reports when it comes to it.
            return
        reports.append(lag)
        if lag.total == 0:
            come.set()

    listener = lag_listener(report)
    spark.streams.addListener(listener)
    try:
        given = {**broker.options, "subscribe": topic, "startingOffsets": "earliest"}
        runs = StreamRuns(spark, tmp_path / "c", {**given, "maxOffsetsPerTrigger": "6"})
        runs.run()
        assert come.wait(QUERY_LIMIT_S)
    finally:
        spark.streams.removeListener(listener)
    assert [lag.total for lag in reports if lag.rows] == [4, 0]
    assert {(q.topic, q.queue_id) for q in reports[0].queues} == {(topic, 0), (topic, 1)}
    assert "waiting" in reports[0].line()


@pytest.mark.parametrize("way", ["on", "off"])
def test_a_large_backlog(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path, way: str
) -> None:
    topic, count = new_topic(4), BACKLOG
    given = {**broker.options, "subscribe": topic, "startingOffsets": "earliest"}
    connected = connections.connect(SourceOptions.parse(given).connection)
    producer = BulkProducer(connected.client)
    for first in range(0, count, 100_000):
        bodies = [b"%d" % number for number in range(first, first + 100_000)]
        connected.call(producer.send_bodies(topic, bodies))
    connections.close_connections()
    seen = []

    def take(frame: Any, _: int) -> None:
        numbers = frame.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS number")
        seen.append(numbers.selectExpr("count(*)", "sum(number)", "max(number)").collect()[0])

    reader = spark.readStream.format("rmq").options(**given, shortCircuit=way)
    writer = (
        reader.option("maxOffsetsPerTrigger", str(BACKLOG // 5 * 2))
        .schema("value BINARY")
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
    )
    run_to_end(writer.start)
    assert sum(row[0] for row in seen) == count
    assert sum(row[1] for row in seen) == count * (count - 1) // 2
