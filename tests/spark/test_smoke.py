"""What must work on every release of Spark from 4.0 on; the other files are for the newest."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker
from tests.spark.stream_runs import StreamRuns, run_to_now

pytest.importorskip("pyspark")


def test_batch_and_stream(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(3)
    broker.produce(topic, [f"m{n}" for n in range(40)], tags="A", properties={"a": "b"})
    frame = spark.read.format("rmq").options(**broker.options).option("includeHeaders", "true")
    rows = frame.load(topic).collect()
    assert sorted(bytes(row.value) for row in rows) == sorted(b"m%d" % n for n in range(40))
    assert all(row.tags == "A" and row.properties == {"a": "b"} for row in rows)

    given = {**broker.options, "subscribe": topic, "startingOffsets": "earliest"}
    runs = StreamRuns(spark, tmp_path / "c", {**given, "maxOffsetsPerTrigger": "25"})
    runs.run()
    assert len(runs.rows) == 40
    broker.produce(topic, [f"m{n}" for n in range(40, 50)])
    query = run_to_now(runs.start)
    try:
        broker.create_topic(topic, 5)
        broker.produce(topic, [f"m{n}" for n in range(50, 90)])
        query.processAllAvailable()
    finally:
        query.stop()
    runs.run()
    assert sorted(runs.values) == sorted(f"m{n}" for n in range(90))


def test_what_is_written_comes_back(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """On 4.0 the stream hands rows to the sink, later Arrow batches."""
    source, target = new_topic(2), new_topic(2)
    broker.produce(source, [f"m{n}" for n in range(30)], keys="k")
    given = {**broker.options, "subscribe": source, "startingOffsets": "earliest"}
    for first in (30, 60):
        rows = spark.readStream.format("rmq").options(**given).load()
        writer = (
            rows.selectExpr("value", "key", "map('a', 'b') as properties")
            .writeStream.format("rmq")
            .options(**broker.options)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        run_to_now(writer.start).stop()
        broker.produce(source, [f"m{n}" for n in range(first, first + 30)], keys="k")
    found = broker.consume(target)
    assert sorted(m.body.decode() for m in found) == sorted(f"m{n}" for n in range(60))
    assert all(m.keys == "k" and m.properties["a"] == "b" for m in found)

    frame = spark.createDataFrame([(f"x{n}", n) for n in range(50)], "value string, flag int")
    frame.write.format("rmq").options(**broker.options).mode("append").save(target)
    written = [m for m in broker.consume(target) if m.body.startswith(b"x")]
    assert sorted((m.body.decode(), m.flag) for m in written) == sorted(
        (f"x{n}", n) for n in range(50)
    )


def test_a_broker_that_only_the_options_name(spark: Any, tmp_path: Path) -> None:
    name = f"options {os.getpid()}"
    frame = spark.createDataFrame([(f"m{n}",) for n in range(20)], "value string")
    given = {"rmq.embedded": name}
    frame.write.format("rmq").options(**given).mode("append").save("orders")
    rows = spark.readStream.format("rmq").options(**given, startingOffsets="earliest")
    stream = (
        rows.load("orders")
        .select("value")
        .writeStream.format("rmq")
        .options(**given)
        .option("topic", "copies")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    run_to_now(stream.start).stop()
    assert spark.read.format("rmq").options(**given).load("copies").count() == 20
    broker = EmbeddedBroker.shared(name)
    try:
        assert len(broker.consume("orders")) == 20
    finally:
        broker.stop()
