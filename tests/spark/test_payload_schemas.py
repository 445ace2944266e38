"""Readers without a schema in Spark: the rules of `spark.read.json`, and what is read with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.payloads.inference.sampled_types import sampled_type

pytest.importorskip("pyspark")

SAMPLES = [
    ['{"b": 1, "a": "x", "C": true}', '{"a": null}'],
    ['{"a": 1}', '{"a": 1.5}'],
    ['{"a": 1}', '{"a": "t"}'],
    ['{"a": 12345678901234567890}', '{"a": 1}'],
    ['{"a": 12345678901234567890}', '{"a": 0.5}'],
    ['{"a": 99999999999999999999999999999999999999}', '{"a": 5}'],
    ['{"a": 999999999999999999999999999999999999999}'],
    ['{"a": 1e3}', '{"a": -0}', '{"b": NaN}'],
    ['{"a": []}', '{"b": [null]}', '{"c": [1, "x"]}', '{"d": [[1], [2.5]]}'],
    ['{"a": {}, "b": {"c": {}}, "d": 1}'],
    ['{"a": {"x": 1}}', '{"a": {"y": [true]}}'],
    ['{"a": {"x": 1}}', '{"a": "x"}'],
    ['{"a": [1]}', '{"a": {"x": 1}}'],
    ['{"at": "2024-05-31T12:00:00Z", "day": "2024-05-31"}'],
    ['{"a b": 1, "": 2, "é`": 3}'],
    ['{"a": -9223372036854775808}', '{"a": 9223372036854775808}'],
]


def test_schemas_are_those_of_spark_read_json(spark: Any) -> None:
    from pyspark.sql.types import StructType

    told = []
    for texts in SAMPLES:
        theirs = spark.read.json(spark.sparkContext.parallelize(texts, 1)).schema
        ours = StructType.fromJson(sampled_type([t.encode() for t in texts], "json"))
        if ours != theirs:
            told.append((texts, ours.simpleString(), theirs.simpleString()))
    assert not told


def test_a_batch_without_a_schema(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    bodies = [{"id": f"o{n}", "lines": [{"n": n}], "a `b`": 0.5} for n in range(5)]
    broker.produce(topic, [json.dumps(body) for body in bodies])
    reader = spark.read.format("rmq").options(**broker.options, valueFormat="json")
    found = reader.option("inferSchema", "true").load(topic)
    rows = found.select("value.*").orderBy("id").collect()
    assert [row.asDict(recursive=True) for row in rows] == bodies
    flat = reader.options(inferSchema="true", flattenValue="true").load(topic)
    assert sorted(row["a `b`"] for row in flat.where("offset >= 0").collect()) == [0.5] * 5
    stream = spark.readStream.format("rmq").options(**broker.options, valueFormat="json")
    unstarted = stream.options(inferSchema="true", subscribe=topic).load().writeStream
    unstarted = unstarted.format("noop").option("checkpointLocation", str(tmp_path / "stream"))
    # Spark asks for the reader of a stream when it starts.
    with pytest.raises(Exception, match=r"inferSchema=true is for spark\.read: later messages"):
        unstarted.start().processAllAvailable()
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    avro = new_topic(1)
    broker.produce(avro, [b"\x02"])
    reader = spark.read.format("rmq").options(**broker.options, valueFormat="avro")
    read = reader.option("value.schema", json.dumps(schema)).load(avro)
    assert [(row.value.a, row.offset) for row in read.collect()] == [(1, 0)]
