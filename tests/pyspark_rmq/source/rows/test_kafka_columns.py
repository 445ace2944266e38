"""Messages of a broker under the names of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.columns import KAFKA, choose_columns
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.batch_plan import batch_ranges
from pyspark_rmq.source.rows.range_reader import Task, read_task

FIELDS = [
    ("key", "binary", True), ("value", "binary", True), ("timestampType", "int", True),
    ("headers", "array<struct<key:string,value:binary>>", True), ("tags", "string", True),
]  # fmt: skip


def test_key_headers_and_type_of_the_time(
    broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    broker.produce(topic, ["1"], keys="é", tags="t", properties={"a": "ü", "b": "2"})
    broker.produce(topic, ["2"])

    def rows(**given: str) -> list[dict[str, Any]]:
        texts = {**broker.options, "subscribe": topic, "columnNames": "kafka", **given}
        options = SourceOptions.parse(texts).for_batch()
        connected = connections.connect(options.connection)
        ranges = connected.call(batch_ranges(connected.client, options))
        columns = choose_columns(FIELDS, KAFKA)
        batches = list(read_task(Task(tuple(ranges), {}), options, columns))
        found: list[dict[str, Any]] = pa.Table.from_batches(batches).to_pylist()
        return found

    first, second = rows()
    pairs = [{"key": "a", "value": "ü".encode()}, {"key": "b", "value": b"2"}]
    assert sorted(first.pop("headers"), key=lambda pair: pair["key"]) == pairs
    assert first == {"key": "é".encode(), "value": b"1", "timestampType": 1, "tags": "t"}
    assert second == {
        "key": None, "value": b"2", "timestampType": 1, "headers": None, "tags": None,
    }  # fmt: skip
    assert [row["value"] for row in rows(where="key = 'é'")] == [b"1"]
