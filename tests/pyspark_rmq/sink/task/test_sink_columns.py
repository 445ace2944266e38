"""Rows from Spark as columns of messages, and the queue of each row."""

from __future__ import annotations

import datetime
import decimal
import random
import zlib
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from broker_core import MessageQueue, errors, java_hash
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.outgoing_columns import (
    ColumnReader,
    OutgoingColumns,
)
from pyspark_rmq.sink.task.queue_selection import QueueSelection, RowPlaces
from pyspark_rmq.sink.task.sink_columns import find_columns

MAP = pa.map_(pa.string(), pa.string())
KINDS = {
    "value": pa.binary(), "key": pa.string(), "topic": pa.string(), "tags": pa.string(),
    "properties": MAP, "partition": pa.int32(), "broker": pa.string(), "shardingKey": pa.string(),
    "delayLevel": pa.int32(), "flag": pa.int32(), "deliverAt": pa.timestamp("us", "UTC"),
}  # fmt: skip
SPARK = {
    pa.binary(): "binary", pa.string(): "string", MAP: "map<string,string>",
    KINDS["deliverAt"]: "timestamp",
}  # fmt: skip
QUEUES = tuple(MessageQueue("T", name, q) for name in ("a", "b") for q in range(3))


def reader(batch: Any, row_name: str = "", **options: str) -> ColumnReader:
    parsed = SinkOptions.parse({"rmq.namesrv.addr": "h:1", "topic": "T", **options})
    if "topic" in batch.schema.names:
        parsed = SinkOptions.parse({"rmq.namesrv.addr": "h:1", **options})
    fields = [(f.name, SPARK.get(f.type, "int")) for f in batch.schema]
    return ColumnReader(find_columns(fields, parsed), parsed, row_name)


def rows(**columns: list[Any]) -> Any:
    arrays = {name: pa.array(values, KINDS[name]) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def only(batch: Any, **options: str) -> OutgoingColumns:
    [found] = reader(batch, **options).messages(batch)
    return found


def texts(found: OutgoingColumns) -> list[Any]:
    return found.properties.to_pylist()


def test_bodies_and_keys_are_shared_with_spark() -> None:
    batch = rows(value=[b"1", b""], key=["k", None], tags=[None, "t"])
    found = only(batch)
    assert found.body.equals(batch.column(0))
    assert found.body.buffers()[2].address == batch.column(0).buffers()[2].address
    assert (found.keys.to_pylist(), found.tags.to_pylist()) == (["k", None], [None, "t"])
    assert found.properties is None
    assert (found.topic, found.row_count, found.size) == ("T", 2, 1)


def test_properties_become_text() -> None:
    maps = [{"a": "1", "b": "2"}, {}, None, {"c": "3"}, {"d": None}]
    found = only(rows(value=[b""] * 5, properties=[m and list(m.items()) for m in maps]))
    assert texts(found) == ["a\x011\x02b\x012", None, None, "c\x013", "d\x01"]


def test_a_slice_of_maps_is_a_slice() -> None:
    batch = rows(value=[b""] * 4, properties=[[("a", "1")], [("b", "2")], None, [("d", "4")]])
    assert texts(only(batch.slice(1, 3))) == ["b\x012", None, "d\x014"]


def test_long_bodies_are_compressed_where_it_pays() -> None:
    noise = random.Random(5).randbytes(5_000)
    long = b"x" * 5_000
    found = only(rows(value=[long, b"short", noise, long], flag=[0, 0, 0, 3]), compression="zlib")
    packed = found.compressed()
    assert packed.packed.tolist() == [True, False, False, True]
    assert packed.body[1].as_py() == b"short"
    assert packed.body[2].as_py() == noise
    assert zlib.decompress(packed.body[0].as_py()) == long
    runs = [(flag, sys_flag, run.row_count) for flag, sys_flag, run in packed.runs_of_one_flag()]
    assert runs == [(0, 1, 1), (0, 0, 2), (3, 1, 1)]
    short = only(rows(value=[b"short"]))
    assert short.compressed() is short


def test_times_in_milliseconds() -> None:
    moment = datetime.datetime(2031, 5, 1, 12, 0, 0, 5_999, datetime.timezone.utc)
    found = only(rows(value=[b"1", b"2"], deliverAt=[moment, None]))
    assert found.deliver_at.tolist() == [int(moment.timestamp() * 1000), 0]
    assert found.is_delayed.tolist() == [True, False]
    assert only(rows(value=[b"1"])).is_delayed is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": [None, b""]}, "column value is null in 1 row, and every message has a body"),
        ({"value": [b""], "key": ["a\x01b"]}, "column key has a character"),
        ({"value": [b""], "tags": ["a\x02"]}, "column tags has a character"),
        ({"value": [b""], "properties": [[("a", "\x02")]]}, "a value of column properties"),
        ({"value": [b""], "properties": [[("", "1")]]}, "a name that is empty"),
        ({"value": [b""], "properties": [[("KEYS", "1"), ("x", "")]]}, "has KEYS, which RocketMQ"),
        (
            {"value": [b""], "topic": [None]},
            "column topic is null in 1 row, and every message has a topic",
        ),
        ({"value": [b"12345"]}, "a value has 5 bytes, maxMessageSize is 4"),
    ],
)
def test_rows_that_cannot_be_written(columns: dict[str, list[Any]], message: str) -> None:
    batch = rows(**columns)
    with pytest.raises(errors.RmqError, match=message):
        reader(batch, maxMessageSize="4").messages(batch)


def test_topics_are_distinguished() -> None:
    batch = rows(
        value=[b"1", b"2", b"3"], topic=["x", "y", "x"], flag=[1, 2, 3], key=["a", "b", "c"]
    )
    found = {m.topic: m for m in reader(batch).messages(batch)}
    assert found["x"].body.to_pylist() == [b"1", b"3"]
    assert found["x"].flags.tolist() == [1, 3]
    assert found["y"].keys.to_pylist() == ["b"]


def test_runs_of_one_flag_keep_the_order() -> None:
    found = only(rows(value=[b"1", b"2", b"3", b"4"], flag=[0, 0, 5, None]))
    runs = [(flag, part.body.to_pylist()) for flag, _, part in found.runs_of_one_flag()]
    assert runs == [(0, [b"1", b"2"]), (5, [b"3"]), (0, [b"4"])]
    same = only(rows(value=[b"1"] * 3, flag=[4] * 3))
    assert next(same.runs_of_one_flag())[2] is same


def test_whole_rows_as_json() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "n": pa.array([1, None]),
            "b": pa.array([b"\xff", b""]),
            "d": pa.array([decimal.Decimal("1.50"), None]),
            "t": pa.array([datetime.datetime(2024, 5, 31, tzinfo=datetime.timezone.utc), None]),
            "m": pa.array([[("k", "v")], None], MAP),
            "s": pa.array([{"x": [1, 2]}, None]),
        }
    )
    found = only(batch, format="json").body.to_pylist()
    assert orjson.loads(found[0]) == {
        "n": 1, "b": "/w==", "d": 1.5, "t": "2024-05-31T00:00:00+00:00", "m": {"k": "v"},
        "s": {"x": [1, 2]},
    }  # fmt: skip
    assert b'"d":1.50' in found[0]
    assert orjson.loads(found[1])["n"] is None


# Queues


def choose(selection: QueueSelection | None = None, count: int = 0, **places: list[Any]) -> Any:
    kinds = {"partitions": pa.int32(), "brokers": pa.string(), "hash_keys": pa.string()}
    arrays = {name: pa.array(values, kinds[name]) for name, values in places.items()}
    count = count or len(next(iter(arrays.values())))
    chosen = (selection or QueueSelection()).choose(QUEUES, RowPlaces(count, **arrays))
    assert chosen.dtype == np.int32
    return chosen.tolist()


def test_the_same_key_goes_to_the_same_queue_as_in_java() -> None:
    keys = ["order-1", None, "order-1", "ü", "", "x" * 1_000]
    chosen = choose(hash_keys=keys)
    hashes = [abs(java_hash(key.encode())) % 6 for key in keys if key is not None]
    assert [c for c, k in zip(chosen, keys, strict=True) if k is not None] == hashes
    assert chosen[0] == chosen[2]


def test_the_queue_that_a_row_names() -> None:
    assert choose(partitions=[2, 0, None, 1], brokers=["a", "b", "b", "b"]) == [2, 3, 0, 4]
    assert choose(partitions=[1, None], brokers=["b", None], hash_keys=["x", "x"]) == [
        4, abs(java_hash(b"x")) % 6,
    ]  # fmt: skip


def test_a_row_may_name_a_broker_only() -> None:
    chosen = choose(brokers=["b", "b", "a", "b", "b"])
    assert sorted(c for c in chosen if c >= 3) == [3, 3, 4, 5]
    assert min(chosen) in (0, 1, 2)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"partitions": [0]}, "needs a column broker"),
        ({"partitions": [3], "brokers": ["a"]}, "broker 'a', partition 3 of topic T"),
        ({"partitions": [-1], "brokers": ["a"]}, "partition -1"),
        ({"partitions": [1], "brokers": ["c"]}, "a with queues 0 to 2, b with queues 0 to 2"),
        ({"partitions": [1], "brokers": [None]}, "a partition, but no broker"),
        ({"brokers": ["c"]}, "broker 'c' of topic T"),
    ],
)
def test_queues_that_there_are_not(places: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        choose(**places)
