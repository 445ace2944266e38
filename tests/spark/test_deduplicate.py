"""Each row of the at-least-once sink once, through Spark: also after a driver began anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker
from tests.spark.repeating_sink import ROWS, values_of, write
from tests.spark.stream_runs import StreamRuns

pytest.importorskip("pyspark")


def test_streams_and_batches(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(4)
    options = {
        **broker.options,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "deduplicate": "true",
        "maxOffsetsPerTrigger": "7000",
        "minPartitions": "2",
    }
    runs = StreamRuns(spark, tmp_path / "checkpoint", options, "value BINARY")
    write(broker.name_server, topic, 0)
    runs.run()
    assert Counter(runs.values) == Counter(values_of(0))
    for batch in (0, 1, 0, 1):
        write(broker.name_server, topic, batch)
    runs.run()
    expected = Counter([*values_of(0), *values_of(1)])
    assert Counter(runs.values) == expected
    reader = spark.read.format("rmq").options(**options).schema("value BINARY")
    assert Counter(bytes(row.value).decode() for row in reader.load().collect()) == expected
    plain = spark.read.format("rmq").options(**{**options, "deduplicate": "false"}).load()
    assert plain.count() == 5 * ROWS


@pytest.mark.parametrize("is_inner", [False, True], ids=["writeStream", "foreachBatch"])
def test_a_new_checkpoint_begins_new_rows(
    spark: Any,
    broker: EmbeddedBroker,
    new_topic: Callable[..., str],
    tmp_path: Path,
    is_inner: bool,
) -> None:
    """Its batches are counted from 0 again under any name of the sink: none is a copy."""
    topic = new_topic(2)
    options = {
        **broker.options,
        "topic": topic,
        "sinkId": f"sink-{topic}",
        "deliveryGuarantee": "at_least_once",
    }

    def store(frame: Any, _: int) -> None:
        frame.write.format("rmq").mode("append").options(**options).save()

    for number in range(2):
        source = tmp_path / f"source{number}"
        source.mkdir()
        (source / "rows.txt").write_text(f"{number}a\n{number}b\n")
        writer = spark.readStream.format("text").load(str(source)).writeStream
        writer = writer.foreachBatch(store) if is_inner else writer.format("rmq").options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint{number}"))
        writer.trigger(availableNow=True).start().awaitTermination()
    found = spark.read.format("rmq").options(**broker.options).option("deduplicate", "true")
    values = [bytes(row.value).decode() for row in found.load(topic).select("value").collect()]
    assert sorted(values) == ["0a", "0b", "1a", "1b"]
