"""What must work on every release of Spark from 4.0 on; the other files are for the newest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker
from tests.spark.stream_runs import StreamRuns

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
    query = runs.start()
    try:
        query.processAllAvailable()
        broker.create_topic(topic, 5)
        broker.produce(topic, [f"m{n}" for n in range(50, 90)])
        query.processAllAvailable()
    finally:
        query.stop()
    runs.run()
    assert sorted(runs.values) == sorted(f"m{n}" for n in range(90))
