"""Typed payloads in Spark: the rules of `from_json`, and reading as batch and as stream."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.payloads.json_columns import JsonDecoder
from pyspark_rmq.payloads.protobuf.messages import message_class
from pyspark_rmq.payloads.spark_types import arrow_type
from tests.pyspark_rmq.payloads.avro.typed_schemas import schema_of
from tests.pyspark_rmq.payloads.json_corpus import BODIES, VALUES
from tests.pyspark_rmq.payloads.protobuf import shop_messages
from tests.spark.stream_runs import StreamRuns, run_to_end, run_to_now

pytest.importorskip("pyspark")

BAD = "BAD"
# Where we differ on purpose (docs/payloads.md): (type, text) -> our value.
DIFFERENCES: dict[tuple[str, str], Any] = {
    ("TINYINT", "128"): BAD,
    **{("STRING", text): text for text in (
        "-0", "1e2", "1E-2", "99999999.99", "99999999.994", "99999999.995", "1e40", "1e400",
        "1e-400", "1e-100000", "3.4028236e38", "NaN", "Infinity", "-Infinity",
    )},
    ("STRING", '{"x": "p", "x": "q"}'): '{"x":"q"}',
    ("BINARY", '" "'): BAD,
    ("BINARY", '"\\u0000"'): BAD,
    **{("DATE", f'"{text}"'): BAD for text in ("1", "+1", "20240531")},
    **{(kind, f'"{text}"'): BAD
       for text in ("-2024-05-31", "12024-05-31", "+2024-05-31", "0000-12-31")
       for kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")},
    ("TIMESTAMP", "9223372036854775807"): BAD,
    ("TIMESTAMP", "-9223372036854775808"): BAD,
    **{(kind, '"2024-05-31T12:30:15.1234567890"'): BAD for kind in ("TIMESTAMP", "TIMESTAMP_NTZ")},
    ("TIMESTAMP", '"2024-05-31T12:30:15+01:00:30"'): BAD,
    ("TIMESTAMP", '"2024-05-31T12:30:15 PST"'): BAD,
    ("TIMESTAMP", '"2024-05-31T12:30:15+18:30"'): 1_717_092_015_000_000,
    ("TIMESTAMP", '"12:30"'): BAD,
    ("TIMESTAMP", '"2024-05-31T12:30Z"'): 1_717_158_600_000_000,
    ("TIMESTAMP", '"2024-05-31T12Z"'): 1_717_156_800_000_000,
}  # fmt: skip
BAD_BODIES = [
    b"", b" ", b'{"a": 1}}', b'{"a": 1} {"a": 2}', b'{"a": 1} x', b"{'a': 1}", b'{"a": 1} // x',
    b'{"a": 1, "s": "\xff"}', b'{"a": 1, "b": "\xff"}', b'{"a": 1, "s": "\xed\xa0\x80"}',
    b'{"a": 1, "s": "\\ud800"}', b'{"a": 1}\x00', b"{}x",
    *(b'{"a": 1, "b": ' + b"[" * n + b"]" * n + b"}" for n in (400, 600)),
]  # fmt: skip
# Times as numbers: Python has no dates that early or late.
_NUMBERS = {
    "DATE": "unix_date(v.a)",
    "TIMESTAMP": "unix_micros(v.a)",
    "TIMESTAMP_NTZ": "unix_micros(CAST(v.a AS TIMESTAMP))",
}


def kind_of(ddl: str) -> Any:
    from pyspark.sql.types import StructType

    return arrow_type(StructType.fromDDL(ddl).jsonValue(), "value")


def ours(kind: str, ddl: str, bodies: list[bytes]) -> list[Any]:
    decoded = JsonDecoder(kind_of(ddl)).decode(pa.array(bodies, pa.binary()))
    values = decoded.values.field(0) if kind else decoded.values
    if kind in _NUMBERS:
        values = values.cast(pa.int32() if kind == "DATE" else pa.int64())
    found = values.to_pylist(maps_as_pydicts="lossy")
    for row, _ in decoded.bad:
        found[row] = BAD
    return found


def test_values_are_those_of_from_json(spark: Any) -> None:
    from pyspark.sql import functions as F

    told = []
    for kind, texts in VALUES.items():
        rows = [(number, f'{{"a": {text}}}') for number, text in enumerate(texts)]
        parsed = F.from_json("t", f"a {kind}, bad STRING", {"columnNameOfCorruptRecord": "bad"})
        frame = spark.createDataFrame(rows, "i INT, t STRING").select("i", parsed.alias("v"))
        shown = frame.selectExpr("i", f"{_NUMBERS.get(kind, 'v.a')} AS a", "v.bad IS NULL AS good")
        theirs = {
            row["i"]: row.asDict(recursive=True)["a"] if row["good"] else BAD
            for row in shown.collect()
        }
        found = ours(kind, f"a {kind}", [text.encode() for _, text in rows])
        for number, text in enumerate(texts):
            expected = DIFFERENCES.get((kind, text), theirs[number])
            # -0.0 and 0.0 are equal, NaN is not equal to itself.
            if found[number] != expected and repr(found[number]) != repr(expected):
                told.append((kind, text, found[number], expected))
            if (kind, text) in DIFFERENCES and theirs[number] == expected:
                told.append((kind, text, "no difference any more", expected))
    assert not told


def test_bodies_are_those_of_from_json(spark: Any) -> None:
    from pyspark.sql import functions as F

    rows = [(number, bytearray(body)) for number, body in enumerate(BODIES)]
    parsed = F.from_json(
        F.col("t").cast("string"), "a INT, s STRING, bad STRING",
        {"columnNameOfCorruptRecord": "bad"},
    )  # fmt: skip
    frame = spark.createDataFrame(rows, "i INT, t BINARY").select("i", parsed.alias("v"))
    theirs: dict[int, Any] = {}
    for row in frame.collect():
        is_good = row["v"] is None or row["v"]["bad"] is None
        theirs[row["i"]] = BAD if not is_good else row["v"] and {
            "a": row["v"]["a"], "s": row["v"]["s"],
        }  # fmt: skip
    found = ours("", "a INT, s STRING", BODIES)
    expected = [BAD if body in BAD_BODIES else theirs[n] for n, body in enumerate(BODIES)]
    assert found == expected
    assert not [body for n, body in enumerate(BODIES) if body in BAD_BODIES and theirs[n] == BAD]


def test_types_are_those_that_spark_expects(spark: Any) -> None:
    import pyspark
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    ddl = ", ".join(f"c{number} {kind}" for number, kind in enumerate(VALUES))
    ddl += ", deep STRUCT<a: ARRAY<MAP<STRING, STRUCT<b: TIMESTAMP, c: DECIMAL(3,1)>>>>"
    schema = StructType.fromDDL(ddl)
    zone = {"timezone": "UTC"} if pyspark.__version__ >= "4.2" else {}
    assert pa.schema(list(kind_of(ddl))).equals(to_arrow_schema(schema, **zone))


def test_batch_and_stream(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    bodies = [
        json.dumps(
            {"id": f"o{n}", "price": n / 4, "at": "2024-05-31T12:00:00Z", "lines": [{"n": n}],
             "more": {"k": n}, "unread": "x"}
        )
        for n in range(40)
    ]  # fmt: skip
    broker.produce(topic, [*bodies, '{"id": 5, "price": "cheap"}'], keys="k")
    schema = (
        "offset LONG, value STRUCT<id: STRING, price: DECIMAL(10,2), at: TIMESTAMP,"
        " lines: ARRAY<STRUCT<n: INT>>, more: MAP<STRING, INT>>, key STRING"
    )
    given = {**broker.options, "valueFormat": "json", "badRecords": "null"}
    reader = spark.read.format("rmq").options(**given)
    rows = reader.schema(f"{schema}, badReason STRING").load(topic).collect()
    good = sorted((row for row in rows if row.value), key=lambda row: row.value.price)
    assert [(r.value.id, float(r.value.price)) for r in good] == [
        (f"o{n}", n / 4) for n in range(40)
    ]
    assert [(r.value.lines[0].n, r.value.more) for r in good] == [(n, {"k": n}) for n in range(40)]
    assert {row.value.at.isoformat()[:10] for row in good} == {"2024-05-31"}
    [bad] = [row for row in rows if row.value is None]
    assert bad.badReason == 'value.price is "cheap", which is not DECIMAL(10,2)'

    given |= {"subscribe": topic, "startingOffsets": "earliest", "badRecords": "skip"}
    flat = StreamRuns(
        spark, tmp_path / "flat", {**given, "flattenValue": "true"}, "id STRING, tags STRING"
    )
    flat.run()
    assert sorted(row.id for row in flat.rows) == sorted([*(f"o{n}" for n in range(40)), "5"])

    dead = new_topic(1)
    to_dead = {**given, "badRecords": "deadLetter", "deadLetterTopic": dead}
    for attempt in ("first", "again"):
        moving = StreamRuns(spark, tmp_path / attempt, to_dead, schema)
        moving.run()
        assert sorted(row.value.id for row in moving.rows) == sorted(f"o{n}" for n in range(40))
    [letter] = spark.read.format("rmq").options(**broker.options).load(dead).collect()
    assert bytes(letter.value) == b'{"id": 5, "price": "cheap"}', "once, though read twice"

    failing = StreamRuns(spark, tmp_path / "fail", {**given, "badRecords": "fail"}, schema)
    with pytest.raises(Exception, match=rf"BadRecord.*queue \d of {topic} on .*price is \"cheap\""):
        failing.run()


def test_bad_records_are_counted_in_the_progress(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    topic = new_topic(1)
    broker.produce(topic, ["junk", '{"orderId": "a"}', "[", '{"orderId": "b"}', '{"orderId": "c"}'])
    reader = spark.readStream.format("rmq").options(**broker.options, subscribe=topic)
    reader = reader.options(valueFormat="json", badRecords="null", startingOffsets="earliest")
    orders = reader.schema("value STRUCT<orderId: STRING>, badReason STRING").load()
    counted = orders.observe("orders", F.count("badReason").alias("bad"), F.count("*").alias("all"))
    good = counted.where("badReason IS NULL").writeStream.format("noop")
    writer = good.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = run_to_end(writer.start)
    seen = [one.observedMetrics["orders"] for one in query.recentProgress if one.observedMetrics]
    assert [(row.bad, row["all"]) for row in seen if row["all"]] == [(2, 5)]


def test_a_schema_is_needed_and_checked_on_the_driver(spark: Any, broker: EmbeddedBroker) -> None:
    reader = spark.read.format("rmq").options(**broker.options).option("valueFormat", "json")
    with pytest.raises(Exception, match=r"needs a schema that names the fields"):
        reader.load("any")
    with pytest.raises(Exception, match=r"value.a has type interval"):
        reader.schema("value STRUCT<a: INTERVAL>").load("any").collect()


def test_what_the_sink_encodes_the_source_decodes(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    from chispa import assert_df_equality

    kinds = (
        "id STRING, raw BINARY, yes BOOLEAN, b TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT,"
        " d DOUBLE, p DECIMAL(38,10), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ,"
        " list ARRAY<DATE>, map MAP<STRING, TIMESTAMP>, deep STRUCT<x: ARRAY<STRUCT<y: FLOAT>>>"
    )
    row = spark.sql(
        "SELECT 'o1' id, X'00ff' raw, true yes, 1Y b, 2S s, 3 i, 4L l, 0.1F f, double('NaN') d,"
        " 12345678901234567890.5BD p, DATE'2024-05-31' day, TIMESTAMP'2024-05-31 12:00:00.5' at,"
        " TIMESTAMP_NTZ'1969-12-31 23:59:59.999999' local, array(DATE'0001-01-01', null) list,"
        " map('a', TIMESTAMP'2024-05-31 12:00:00', 'b', null) map,"
        " named_struct('x', array(named_struct('y', 3.25F), null)) deep"
    )
    frame = spark.createDataFrame([("o2",) + (None,) * 15], kinds).unionByName(row)
    connection = {**broker.options, "valueFormat": "json"}

    def write(rows: Any, topic: str, **given: str) -> None:
        writer = rows.write.format("rmq").options(**connection, **given)
        writer.mode("append").save(topic)

    topic = new_topic(1)
    write(frame, topic, keyColumn="id", tagsColumn="i", propertyColumns="day")
    found = {message.keys: message for message in broker.consume(topic)}
    assert found["o1"].tags == "3" and found["o1"].properties["day"] == "2024-05-31"
    assert "day" not in found["o2"].properties
    reader = spark.read.format("rmq").options(**connection).option("flattenValue", "true")
    back = reader.schema(kinds).load(topic)
    assert_df_equality(
        frame.orderBy("id"), back.orderBy("id"), ignore_nullable=True, allow_nan_equality=True
    )

    schema = json.dumps(schema_of(kind_of(kinds)))
    for more in ({"valueFormat": "msgpack"}, {"valueFormat": "avro", "value.schema": schema}):
        connection |= more
        topic = new_topic(1)
        write(frame, topic)
        reader = spark.read.format("rmq").options(**connection, flattenValue="true")
        assert_df_equality(
            frame.orderBy("id"), reader.schema(kinds).load(topic).orderBy("id"),
            ignore_nullable=True, allow_nan_equality=True,
        )  # fmt: skip
    connection = {**broker.options, "valueFormat": "json"}

    whole = new_topic(1)
    keyed = frame.selectExpr("if(i IS NULL, NULL, struct(id, at)) AS key", "struct(*) AS value")
    write(keyed, whole, keyFormat="json")
    reader = spark.read.format("rmq").options(**connection, keyFormat="json")
    values = reader.schema(f"key STRUCT<id: STRING, at: TIMESTAMP>, value STRUCT<{kinds}>")
    assert_df_equality(
        keyed.select("key", "value.*").orderBy("id"),
        values.load(whole).select("key", "value.*").orderBy("id"),
        ignore_nullable=True, allow_nan_equality=True,
    )  # fmt: skip


def test_a_stream_decodes_and_encodes(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Spark 4.0 hands nested rows to the sink, later releases Arrow batches."""
    source, target = new_topic(1), new_topic(1)
    bodies = [{"id": f"o{n}", "lines": [{"n": n, "raw": "AQ=="}], "more": {"k": n}} for n in (1, 2)]
    broker.produce(source, [json.dumps(body) for body in bodies])
    given = {**broker.options, "valueFormat": "json"}
    lines = "lines: ARRAY<STRUCT<n: INT, raw: BINARY>>"
    stream = (
        spark.readStream.format("rmq").options(**given).option("subscribe", source)
        .option("startingOffsets", "earliest")
        .schema(f"value STRUCT<id: STRING, {lines}, more: MAP<STRING, INT>>").load()
    )  # fmt: skip
    writer = (
        stream.writeStream.format("rmq").options(**given).option("topic", target)
        .option("keyColumn", "id").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )  # fmt: skip
    run_to_end(writer.start)
    found = sorted(broker.consume(target), key=lambda message: message.keys)
    assert [(message.keys, json.loads(message.body)) for message in found] == [
        (body["id"], body) for body in bodies
    ]


AVRO = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "string"},
        {"name": "unread", "type": ["null", "string", {"type": "map", "values": "double"}]},
        {"name": "n", "type": ["null", "long"]},
        {"name": "price", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "L"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [
                {"name": "f", "type": "float"}, {"name": "yes", "type": "boolean"}]}}},
        {"name": "more", "type": {"type": "map", "values": ["int", "null"]}},
    ],
}  # fmt: skip


class JavaAvro:
    """Apache Avro's own library, which Spark has."""

    def __init__(self, spark: Any, schema: str) -> None:
        self._jvm = spark.sparkContext._jvm
        self._avro = self._jvm.org.apache.avro
        self._schema = self._jvm.org.apache.avro.Schema.Parser().parse(schema)

    def encoded(self, text: str, in_blocks: bool = False) -> bytes:
        """The encoding of a value in Avro's JSON form."""
        decoder = self._avro.io.DecoderFactory.get().jsonDecoder(self._schema, text)
        value = self._avro.generic.GenericDatumReader(self._schema).read(None, decoder)
        out = self._jvm.java.io.ByteArrayOutputStream()
        factory = self._avro.io.EncoderFactory.get()
        new = factory.blockingBinaryEncoder if in_blocks else factory.binaryEncoder
        encoder = new(out, None)
        self._avro.generic.GenericDatumWriter(self._schema).write(value, encoder)
        encoder.flush()
        return bytes(out.toByteArray())

    def decoded(self, body: bytes) -> str:
        """A value in Avro's JSON form."""
        decoder = self._avro.io.DecoderFactory.get().binaryDecoder(bytearray(body), None)
        value = self._avro.generic.GenericDatumReader(self._schema).read(None, decoder)
        out = self._jvm.java.io.ByteArrayOutputStream()
        encoder = self._avro.io.EncoderFactory.get().jsonEncoder(self._schema, out)
        self._avro.generic.GenericDatumWriter(self._schema).write(value, encoder)
        encoder.flush()
        return str(out.toString())


def test_avro_of_the_java_library(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    java = JavaAvro(spark, json.dumps(AVRO))
    texts = [
        {"id": "é1", "unread": {"map": {"x": 0.5}}, "n": {"long": -(1 << 63)},
         "price": "\u00ff8", "size": "L", "at": 1_717_156_800_000_001,
         "lines": [{"f": 1.5, "yes": True}, {"f": -0.5, "yes": False}],
         "more": {"k": {"int": -3}, "l": None}},
        {"id": "2", "unread": None, "n": None, "price": "\u0001", "size": "S", "at": -1,
         "lines": [], "more": {}},
    ]  # fmt: skip
    bodies = [java.encoded(json.dumps(text), in_blocks) for text in texts for in_blocks in (0, 1)]
    framed = [b"\0\0\0\0\x07" + body for body in bodies]
    source, target = new_topic(1), new_topic(1)
    broker.produce(source, [*bodies, *framed, bodies[0][:-1], b"", bytes(40)])
    given = {
        **broker.options, "valueFormat": "avro", "value.schema.file": str(tmp_path / "order.avsc"),
    }  # fmt: skip
    value = (
        "value STRUCT<id: STRING, n: BIGINT, price: DECIMAL(10,2), size: STRING, at: TIMESTAMP,"
        " lines: ARRAY<STRUCT<f: FLOAT, yes: BOOLEAN>>, more: MAP<STRING, INT>>"
    )
    reader = spark.read.format("rmq").options(**given, badRecords="null")
    frame = reader.schema(f"offset LONG, {value}, badReason STRING").load(source)
    rows = frame.selectExpr("*", "unix_micros(value.at) AS at").orderBy("offset").collect()
    assert [row.badReason is None for row in rows] == [True] * 8 + [False] * 3
    for row, text in zip(rows, [texts[n // 2 % 2] for n in range(8)], strict=False):
        found: dict[str, Any] = row.value.asDict(recursive=True)
        assert (found["id"], found["size"], row["at"]) == (text["id"], text["size"], text["at"])
        assert found["n"] == (text["n"] and text["n"]["long"])
        assert (found["lines"], str(found["price"])) == (
            text["lines"], "-2.00" if text["id"] == "é1" else "0.01"
        )  # fmt: skip
        assert found["more"] == ({"k": -3, "l": None} if text["id"] == "é1" else {})

    good = frame.where("badReason IS NULL AND offset < 8").coalesce(1).select("value.*")
    writer = good.sortWithinPartitions("n").write.format("rmq").options(**given, keyColumn="id")
    writer.mode("append").save(target)
    unread = [{**text, "unread": None} for text in texts]
    written = {message.keys: json.loads(java.decoded(message.body)) for message in
               broker.consume(target)}  # fmt: skip
    assert written == {text["id"]: text for text in unread}
    with pytest.raises(Exception, match=r"value\.id is INT, and Avro's string is not read as it"):
        reader.schema("value STRUCT<id: INT>").load(source).collect()


def test_maps_with_other_keys(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(shop_messages.descriptor_set())
    row = "map(1, 10, -2, 20) AS int, map(9000000000L, 30) AS long, map(true, 4, false, 5) AS yes"
    frame = spark.sql(f"SELECT {row} UNION ALL SELECT map(), map(), map()").coalesce(1)
    fields = "int MAP<INT, INT>, long MAP<BIGINT, INT>, yes MAP<BOOLEAN, INT>"
    message = {"value.schema.file": str(path), "value.message.name": "shop.Keyed"}
    for given in ({"valueFormat": "msgpack"}, {"valueFormat": "protobuf", **message}):
        topic = new_topic(1)
        options = {**broker.options, **given}
        frame.write.format("rmq").options(**options).mode("append").save(topic)
        reader = spark.read.format("rmq").options(**options, flattenValue="true").schema(fields)
        found = [one.asDict() for one in reader.load(topic).collect()]
        assert sorted(found, key=repr) == sorted(
            (one.asDict() for one in frame.collect()), key=repr
        )
    for body_format in ("json", "debezium-json"):
        reader = spark.read.format("rmq").options(**broker.options, valueFormat=body_format)
        with pytest.raises(Exception, match="keys are not STRING"):
            reader.schema("value STRUCT<after: STRUCT<m: MAP<INT, INT>>>").load(topic).collect()
    keyed = frame.selectExpr("int AS key", "'x' AS value").write.format("rmq")
    with pytest.raises(Exception, match="column key has a MAP whose keys are not STRING"):
        keyed.options(**broker.options, keyFormat="json").mode("append").save(topic)


def test_protobuf(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    message = message_class(shop_messages.given())
    orders = [message(id=f"o{n}", big=(1 << 64) - n, size=5, cash=n) for n in (1, 2)]
    orders[0].at.FromMicroseconds(1_717_156_800_000_001)
    orders[0].lines.add(a=3)
    orders[0].counts["k"] = 4
    path = tmp_path / "shop.desc"
    path.write_bytes(shop_messages.descriptor_set())
    source, target = new_topic(1), new_topic(1)
    broker.produce(source, [*(order.SerializeToString() for order in orders), b"\x0a"])
    given = {
        **broker.options, "valueFormat": "protobuf", "value.schema.file": str(path),
        "value.message.name": "shop.Order",
    }  # fmt: skip
    fields = (
        "id STRING, big DECIMAL(20,0), size STRING, at TIMESTAMP, cash INT, maybe INT,"
        " lines ARRAY<STRUCT<a: INT>>, counts MAP<STRING, INT>"
    )
    reader = spark.read.format("rmq").options(**given, badRecords="null", flattenValue="true")
    frame = reader.schema(f"{fields}, badReason STRING").load(source)
    *rows, bad = frame.selectExpr("*", "unix_micros(at) AS us").orderBy("cash").collect()[::-1]
    assert bad.id is None and bad.badReason.startswith("not Protobuf")
    assert [(r.id, int(r.big), r.size, r.us, r.maybe, r.lines, r.counts) for r in rows[::-1]] == [
        ("o1", (1 << 64) - 1, "L", 1_717_156_800_000_001, None, [(3,)], {"k": 4}),
        ("o2", (1 << 64) - 2, "L", None, None, [], {}),
    ]
    writer = frame.where("id IS NOT NULL").drop("badReason").write.format("rmq").options(**given)
    writer.option("keyColumn", "id").mode("append").save(target)
    written = {found.keys: message.FromString(found.body) for found in broker.consume(target)}
    assert written == {order.id: order for order in orders}
    with pytest.raises(Exception, match=r"message shop\.Nothing is not in the descriptor set"):
        named = reader.option("value.message.name", "shop.Nothing")
        named.schema("id STRING").load(source).collect()


# The page shows this body, with an address and a directory instead of the last two arguments.
def page_job(spark: Any, server: str, checkpoint: str) -> Any:
    from pyspark.sql import functions as F

    rmq = {"rmq.namesrv.addr": server, "valueFormat": "json"}
    reader = spark.readStream.format("rmq").options(**rmq, subscribe="orders", flattenValue="true")
    reader = reader.schema("city STRING, amount DECIMAL(10,2), at TIMESTAMP")
    orders = reader.option("startingOffsets", "earliest").load()
    hours = orders.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 hour"), "city")
    writer = hours.agg(F.sum("amount").alias("total")).writeStream.format("rmq").options(**rmq)
    writer = writer.options(topic="totals", keyColumn="city", checkpointLocation=checkpoint)
    query = writer.start()
    return query  # noqa: RET504


def test_the_job_of_the_page(spark: Any, broker: EmbeddedBroker, tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/payloads.md").read_text(encoding="utf-8")
    shown = page.split("```python\n")[1].split("```")[0]
    body = textwrap.dedent("".join(inspect.getsourcelines(page_job)[0][1:-1]))
    for argument, text in (("server", "127.0.0.1:9876"), ("checkpoint", "checkpoints/totals")):
        body = re.sub(rf"(?<=[:= ]){argument}\b(?=[,)])", f'"{text}"', body)
    assert shown == body and len(body.splitlines()) <= 10
    broker.create_topic("orders", 2)
    broker.create_topic("totals", 1)
    amounts = [
        ("Oslo", 9.5, "12:10"), ("Rome", 1, "12:20"), ("Oslo", 9.5, "12:59"), ("Oslo", 7, "15:00"),
    ]  # fmt: skip
    bodies = [
        json.dumps({"city": city, "amount": amount, "at": f"2024-05-31T{at}:00Z", "x": 1})
        for city, amount, at in amounts
    ]
    broker.produce("orders", bodies)
    server = broker.options["rmq.namesrv.addr"]
    query = run_to_now(lambda: page_job(spark, server, str(tmp_path / "checkpoint")))
    found: dict[str, Any] = {}
    try:
        # Spark closes a window with a batch of its own, after the last one with data.
        while len(found) < 2:
            query.processAllAvailable()
            found = {m.keys: json.loads(m.body) for m in broker.consume("totals")}
    finally:
        query.stop()
    hour = {"start": "2024-05-31T12:00:00Z", "end": "2024-05-31T13:00:00Z"}
    assert found["Oslo"] == {"window": hour, "city": "Oslo", "total": 19.0}
    assert found["Rome"] == {"window": hour, "city": "Rome", "total": 1.0}
