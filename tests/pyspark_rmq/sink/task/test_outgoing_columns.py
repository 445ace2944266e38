"""Arrow batches to columns of messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.outgoing_columns import (
    OVERSIZE_PROPERTY,
    ROW_PROPERTY,
    ColumnReader,
    OutgoingColumns,
    batches_of_rows,
)
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


def reader(batch: Any, row_name: str = "", **options: str) -> ColumnReader:
    parsed = SinkOptions.parse({"rmq.namesrv.addr": "h:1", "topic": "T", **options})
    if "topic" in batch.schema.names:
        parsed = SinkOptions.parse({"rmq.namesrv.addr": "h:1", **options})
    fields = [(f.name, SPARK.get(f.type, "int")) for f in batch.schema]
    return ColumnReader(find_columns(fields, parsed), parsed, row_name)


def rows(**columns: list[Any]) -> Any:
    arrays = {name: pa.array(values, KINDS[name]) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def texts(found: OutgoingColumns) -> list[Any]:
    return found.properties.to_pylist()


def test_sharding_keys_and_row_names_are_properties() -> None:
    batch = rows(value=[b""] * 3, shardingKey=["s", None, ""], properties=[[("a", "1")], None, []])
    own = reader(batch, "q:7:2")
    [found] = own.messages(batch)
    name = f"{ROW_PROPERTY}\x01q:7:2:"
    assert texts(found) == [f"a\x011\x02__SHARDINGKEY\x01s\x02{name}0", f"{name}1", f"{name}2"]
    [found] = own.messages(batch)
    assert texts(found)[2] == f"{name}5"


def test_names_of_rows_do_not_depend_on_what_is_skipped() -> None:
    batch = rows(value=[b"12345", b"1"])
    own = reader(batch, "q", maxMessageSize="3", oversizePolicy="skip")
    [found] = own.messages(batch)
    assert texts(found) == [f"{ROW_PROPERTY}\x01q:1"]
    assert own.oversize_count == 1
    assert own.messages(rows(value=[b"54321"])) == []


def test_what_is_too_large_is_cut_for_another_topic() -> None:
    batch = rows(value=[b"12345", b"1", b"1234567"], key=["a", "b", "c"], tags=["x", "y", "z"])
    own = reader(batch, "q", maxMessageSize="3", oversizePolicy="dlq", oversizeTopic="large")
    fitting, cut = own.messages(batch)
    assert (fitting.topic, fitting.body.to_pylist()) == ("T", [b"1"])
    assert (cut.topic, cut.body.to_pylist()) == ("large", [b"123", b"123"])
    assert cut.keys.to_pylist() == ["a", "c"]
    assert texts(cut) == [
        f"{OVERSIZE_PROPERTY}\x015\x02{ROW_PROPERTY}\x01q:0",
        f"{OVERSIZE_PROPERTY}\x017\x02{ROW_PROPERTY}\x01q:2",
    ]
    assert own.oversize_count == 2


def test_rows_of_spark_4_0() -> None:
    schema = pa.schema([("value", pa.binary()), ("properties", MAP), ("flag", pa.int32())])
    given_rows = [(bytearray(b"%d" % n), {"a": "b"} if n % 2 else None, n) for n in range(12_000)]
    batches = list(batches_of_rows(iter(given_rows), schema))
    assert [batch.num_rows for batch in batches] == [5_000, 5_000, 2_000]
    assert batches[0].column(0)[7].as_py() == b"7"
    assert batches[0].column(1)[1].as_py() == [("a", "b")]
    assert list(batches_of_rows(iter(()), schema)) == []
