"""Columns of a writer with valueFormat=json, and the messages that they become."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from broker_core import errors
from pyspark_rmq.payloads.read_columns import SchemaField
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.outgoing_columns import ColumnReader, OutgoingColumns, batches_of_rows
from pyspark_rmq.sink.task.payload_columns import encoder_of, find_payload_columns
from pyspark_rmq.sink.task.sink_columns import find_columns

ORDER = pa.struct([("id", pa.string()), ("n", pa.int32())])
MAP = pa.map_(pa.string(), pa.string())
_NAMES = {
    pa.string(): "string", pa.binary(): "binary", pa.int32(): "integer", pa.float64(): "double",
    pa.date32(): "date", pa.decimal128(5, 2): "decimal(5,2)", pa.bool_(): "boolean",
}  # fmt: skip


def json_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        fields = [{"name": f.name, "type": json_type(f.type), "nullable": False} for f in kind]
        return {"type": "struct", "fields": fields}
    if pa.types.is_map(kind):
        names = {"keyType": json_type(kind.key_type), "valueType": json_type(kind.item_type)}
        return {"type": "map", **names, "valueContainsNull": True}
    if pa.types.is_list(kind):
        inner = json_type(kind.value_type)
        return {"type": "array", "elementType": inner, "containsNull": False}
    return _NAMES[kind]


def fields_of(**kinds: Any) -> list[SchemaField]:
    simple = {"integer": "int"}
    found = []
    for name, kind in kinds.items():
        given = json_type(kind)
        text = "map<string,string>" if kind == MAP else simple.get(str(given), str(given))
        text = "struct<…>" if pa.types.is_struct(kind) else text
        found.append(SchemaField(name, text, True, given))
    return found


def options(**given: str) -> SinkOptions:
    return SinkOptions.parse(
        {"rmq.namesrv.addr": "h:1", "topic": "T", "valueFormat": "json", **given}
    )


def written(columns: dict[str, Any], **given: str) -> OutgoingColumns:
    batch = pa.RecordBatch.from_pydict(columns)
    kinds = {field.name: field.type for field in batch.schema}
    parsed = options(**given)
    reader = ColumnReader(find_payload_columns(fields_of(**kinds), parsed), parsed)
    [found] = reader.messages(batch)
    return found


def test_columns_that_are_not_of_the_message_are_the_body() -> None:
    found = written(
        {"n": pa.array([1, None], pa.int32()), "Key": pa.array(["k", None]),
         "id": pa.array(["a", "b"]), "tags": pa.array(["t", "u"])}
    )  # fmt: skip
    assert found.body.to_pylist() == [b'{"n":1,"id":"a"}', b'{"n":null,"id":"b"}']
    assert (found.keys.to_pylist(), found.tags.to_pylist()) == (["k", None], ["t", "u"])


def test_a_struct_is_the_body_and_its_fields_are_key_and_properties() -> None:
    found = written(
        {"value": pa.array([{"id": "a", "n": 1}, {"id": "", "n": None}], ORDER),
         "who": pa.array(["x", "y"])},
        keyColumn="id", tagsColumn="n", propertyColumns="who, n",
    )  # fmt: skip
    assert found.body.to_pylist() == [b'{"id":"a","n":1}', b'{"id":"","n":null}']
    assert found.keys.to_pylist() == ["a", ""]
    assert found.tags.to_pylist() == ["1", None]
    assert found.properties.to_pylist() == ["who\x01x\x02n\x011", "who\x01y"]


def test_msgpack() -> None:
    found = written({"value": pa.array([{"id": "a", "n": 1}], ORDER)}, valueFormat="msgpack")
    assert found.body.to_pylist() == [b"\x82\xa2id\xa1a\xa1n\x01"]


AVRO = {
    "valueFormat": "avro",
    "value.schema": (
        '{"type": "record", "name": "O", "fields": [{"name": "id", "type": "string"},'
        ' {"name": "n", "type": ["null", "int"]}]}'
    ),
}


def test_avro() -> None:
    whole = written({"value": pa.array([{"id": "a", "n": 1}], ORDER)}, **AVRO, keyColumn="id")
    assert (whole.body.to_pylist(), whole.keys.to_pylist()) == ([b"\x02a\x02\x02"], ["a"])
    fields = written({"id": pa.array(["a"]), "key": pa.array(["k"])}, **AVRO)
    assert (fields.body.to_pylist(), fields.keys.to_pylist()) == ([b"\x02a\x00"], ["k"])


def test_an_avro_schema_is_checked_before_there_are_rows() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"value\.id is INT, and is not written"):
        find_payload_columns(fields_of(id=pa.int32()), options(**AVRO))
    with pytest.raises(errors.InvalidArgument, match=r"has no field value\.x"):
        find_payload_columns(fields_of(id=pa.string(), x=pa.string()), options(**AVRO))


def test_keys_as_json() -> None:
    keys = pa.array([{"id": "a\x01 b", "n": 1}, None, {"id": None, "n": 2}], ORDER)
    texts = ['{"id":"a\\u0001 b","n":1}', None, '{"id":null,"n":2}']
    found = written({"key": keys, "x": pa.array([1, 2, 3], pa.int32())}, keyFormat="json")
    assert found.keys.to_pylist() == texts
    assert found.body.to_pylist()[0] == b'{"x":1}'
    whole = written({"key": keys.drop_null(), "x": pa.array([1, 3], pa.int32())}, keyFormat="json")
    assert whole.keys.to_pylist() == [texts[0], texts[2]]
    plain = written({"key": pa.array(["k"]), "x": pa.array([1], pa.int32())}, keyFormat="json")
    assert plain.keys.to_pylist() == ["k"]
    with pytest.raises(errors.InvalidArgument, match=r"column key is .*must be"):
        written({"key": keys, "x": pa.array([1, 2, 3], pa.int32())})
    with pytest.raises(errors.InvalidArgument, match=r"column key is .*must be"):
        written({"key": pa.array([1.5]), "x": pa.array([1], pa.int32())}, keyFormat="json")


def test_keys_as_json_beside_plain_bodies() -> None:
    fields = [("key", "struct<id:string,n:int>"), ("value", "binary")]
    parsed = options(valueFormat="binary", keyFormat="json")
    batch = pa.RecordBatch.from_pydict(
        {"key": pa.array([{"id": "a", "n": 1}], ORDER), "value": pa.array([b"x"])}
    )
    [found] = ColumnReader(find_columns(fields, parsed), parsed).messages(batch)
    assert (found.keys.to_pylist(), found.body.to_pylist()) == (['{"id":"a","n":1}'], [b"x"])


def test_other_types_as_keys() -> None:
    columns = {
        "b": pa.array([True]), "d": pa.array([datetime.date(2024, 5, 31)]),
        "p": pa.array([decimal.Decimal("1.50")], pa.decimal128(5, 2)), "raw": pa.array([b"x"]),
    }  # fmt: skip
    for name, text in (("b", "true"), ("d", "2024-05-31"), ("p", "1.50"), ("raw", "x")):
        assert written(columns, keyColumn=name).keys.to_pylist() == [text]


def test_a_sharding_key_of_the_payload_chooses_the_queue() -> None:
    found = written({"id": pa.array(["a", "b"])}, shardingKeyColumn="id")
    assert found.places.hash_keys.to_pylist() == ["a", "b"]
    assert found.properties.to_pylist() == ["__SHARDINGKEY\x01a", "__SHARDINGKEY\x01b"]


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [(MAP, [("a", "1")], b'{"a":"1"}'), (pa.list_(pa.int32()), [1, None], b"[1,null]")],
)
def test_maps_and_arrays(kind: Any, value: Any, body: bytes) -> None:
    assert written({"value": pa.array([value], kind)}).body.to_pylist() == [body]


@pytest.mark.parametrize(
    ("kinds", "given", "text"),
    [
        ({"key": pa.string()}, {}, "has no column to encode"),
        ({"value": pa.string()}, {}, "value is string, and valueFormat=json encodes a STRUCT"),
        ({"value": ORDER, "x": pa.string()}, {}, "columns x would not be written"),
        ({"id": pa.string()}, {"keyColumn": "ID"}, "keyColumn=ID: there is no such column"),
        ({"id": pa.string(), "key": pa.string()}, {"keyColumn": "id"}, "leave one of them out"),
        ({"x": pa.float64()}, {"tagsColumn": "x"}, "cast it to STRING"),
        ({"x": ORDER}, {"keyColumn": "x"}, "cast it to STRING"),
        ({"KEYS": pa.string()}, {"propertyColumns": "KEYS"}, "KEYS, which RocketMQ uses itself"),
        ({"x": pa.map_(pa.int32(), pa.string())}, {}, "keys are not STRING"),
        ({"x": pa.string(), "flag": pa.string()}, {}, "flag is string, and must be int"),
        ({"x": pa.string()}, {"queueSelector": "hash"}, "needs a column shardingKey or key"),
    ],
)
def test_columns_that_cannot_be_written(
    kinds: dict[str, Any], given: dict[str, str], text: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        find_payload_columns(fields_of(**kinds), options(**given))


def test_types_and_names_that_cannot_be_written() -> None:
    with pytest.raises(errors.InvalidArgument, match="x has type void"):
        find_payload_columns([SchemaField("x", "void", True, "void")], options())
    variant = [SchemaField("x", "variant", True, "variant")]
    assert find_payload_columns(variant, options()).payload == (0,)
    with pytest.raises(errors.InvalidArgument, match="x has a VARIANT, which valueFormat=msgpack"):
        find_payload_columns(variant, options(valueFormat="msgpack"))
    twice = [*fields_of(x=pa.string()), *fields_of(x=pa.string())]
    with pytest.raises(errors.InvalidArgument, match="duplicate columns: x"):
        find_payload_columns(twice, options())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"format": "json"}, "format=json and valueFormat exclude each other"),
        ({"valueFormat": "binary", "keyColumn": "id"}, "need valueFormat=json"),
        ({"valueFormat": "string", "propertyColumns": "id"}, "need valueFormat=json"),
    ],
)
def test_options_that_exclude_each_other(given: dict[str, str], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        options(**given)


def test_a_null_value_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="value is null in 1 row"):
        written({"value": pa.array([None, {"id": "a", "n": 1}], ORDER)})


def test_nested_rows_of_spark_4_0() -> None:
    """It hands rows to a stream writer: tuples, dicts and bytearrays."""
    schema = pa.schema([("value", pa.struct([("m", pa.map_(pa.string(), ORDER)),
                                             ("l", pa.list_(pa.binary()))]))])  # fmt: skip
    rows = [(({"k": ("a", 1)}, [bytearray(b"x"), None]),), ((None, None),)]
    [batch] = batches_of_rows(rows, schema)
    assert batch.column(0).to_pylist() == [
        {"m": [("k", {"id": "a", "n": 1})], "l": [b"x", None]}, {"m": None, "l": None},
    ]  # fmt: skip


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KAFKA = {"columnNames": "kafka", "valueFormat": "binary"}


def kafka(columns: dict[str, Any], **given: str) -> OutgoingColumns:
    simple = {HEADERS: "array<struct<key:string,value:binary>>", pa.int32(): "int"}
    batch = pa.RecordBatch.from_pydict(columns)
    fields = [(f.name, simple.get(f.type, "binary")) for f in batch.schema]
    parsed = options(**{**KAFKA, **given})
    [found] = ColumnReader(find_columns(fields, parsed), parsed).messages(batch)
    return found


def headers(*rows: list[tuple[str | None, bytes | None]] | None) -> Any:
    pairs = [row and [{"key": k, "value": v} for k, v in row] for row in rows]
    return pa.array(pairs, HEADERS)


def test_headers_of_kafka_are_properties() -> None:
    column = headers([("x", b"0")], [("a", b"1"), ("b", b"")], None, [], [("a", "é".encode())])
    batch = {"value": pa.array([b"v"] * 4), "headers": column.slice(1)}
    assert kafka(batch).properties.to_pylist() == ["a\x011\x02b\x01", None, None, "a\x01é"]


def test_rows_with_a_key_go_to_its_queue_as_with_kafka() -> None:
    keys = pa.array([b"a", None, b"b"])
    values = pa.array([b"v"] * 3)
    found = kafka({"key": keys, "value": values})
    assert found.places.hash_keys.to_pylist() == ["a", None, "b"]
    partitions = pa.array([None, 1, None], pa.int32())
    found = kafka({"key": keys, "value": values, "partition": partitions})
    assert found.places.partitions.to_pylist() == [None, 1, None]
    assert found.places.hash_keys.to_pylist() == ["a", None, "b"]
    found = kafka({"key": keys, "value": values}, queueSelector="roundRobin")
    assert found.places.hash_keys is None
    assert kafka({"key": keys, "value": values}, columnNames="default").places.hash_keys is None


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (headers([(None, b"1")]), "a header without a key"),
        (headers([("a", b"\xff")]), "not UTF-8"),
        (headers([("a", b"1"), ("a", b"2")]), "the same key twice"),
        (headers([("KEYS", b"1")]), "headers has KEYS, which RocketMQ uses itself"),
        (headers([("a", b"\x01")]), "a value of column headers has a character 0x01"),
    ],
)
def test_headers_that_no_message_can_have(column: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        kafka({"value": pa.array([b"v"]), "headers": column})


def test_headers_need_the_names_of_kafka() -> None:
    with pytest.raises(errors.InvalidArgument, match="headers"):
        kafka({"value": pa.array([b"v"]), "headers": headers(None)}, columnNames="default")


def test_other_columns_are_left_out_as_with_kafka() -> None:
    """A copy of a topic has the source's columns, too."""
    schema = [("key", "binary"), ("offset", "bigint"), ("value", "binary"), ("x", "void")]
    found = find_columns([*schema, ("timestamp", "timestamp")], options(**KAFKA))
    assert (found.key, found.value) == (0, 2)
    with pytest.raises(errors.InvalidArgument, match="cannot be written: offset, x"):
        find_columns(schema, options(valueFormat="binary"))


def test_frames_of_schemas() -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    given = {"valueFormat": "avro", "value.schema": schema, "value.schema.registry.id": "258"}
    encoder = encoder_of(pa.struct([("n", pa.int32())]), options(**given))
    assert encoder.encode(pa.array([{"n": 1}])).to_pylist() == [b"\0\0\0\1\2\2"]
