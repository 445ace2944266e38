"""`spark.read.format("rmq")` against our broker."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncProducer
from pyspark_rmq import EmbeddedBroker, register
from pyspark_rmq.columns import COLUMNS, EXTRA_COLUMNS, ChosenColumn
from pyspark_rmq.source.rows.message_batches import arrow_schema

chispa = pytest.importorskip("chispa")
pytest.importorskip("pyspark")


def test_arrow_types_are_the_ones_that_spark_expects(spark: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = (*COLUMNS, *EXTRA_COLUMNS)
    schema = StructType.fromDDL(", ".join(f"{c.name} {c.kind}" for c in columns))
    ours = arrow_schema([ChosenColumn(c.name, c.name) for c in columns])
    theirs = to_arrow_schema(schema, timezone="UTC")
    assert ours.equals(theirs, check_metadata=False)


def test_found_without_registration_with_every_column(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    queue = MessageQueue(topic, "broker-a", 1)
    with SyncProducer(broker.name_server) as producer:
        message = OutgoingMessage(topic, b"body", "A", "k1", {"colour": "grün"})
        sent = producer.send(message, queue=queue)
    frame = (
        spark.read.format("rmq")
        .options(**broker.options)
        .option("includeProperties", "true")
        .load(topic)
    )
    expected = spark.createDataFrame(
        [
            (
                "k1",
                bytearray(b"body"),
                topic,
                "A",
                "broker-a",
                1,
                0,
                sent.msg_id,
                0,
                {"colour": "grün"},
            )
        ],
        "key string, value binary, topic string, tags string, broker string, partition int,"
        " offset bigint, msgId string, reconsumeTimes int, properties map<string,string>",
    )
    chispa.assert_df_equality(frame.drop("timestamp", "bornTimestamp"), expected)
    [row] = frame.select("timestamp", "bornTimestamp").collect()
    age = datetime.datetime.now() - row.timestamp
    assert abs(age) < datetime.timedelta(hours=26)


def test_sql_alias_and_old_names(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    broker.produce(topic, [f"m{n}" for n in range(25)])
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING rmq OPTIONS"
        f" (nameServer '{broker.name_server}', subscribe '{topic}')"
    )
    assert spark.sql("SELECT count(DISTINCT value) FROM orders").collect()[0][0] == 25
    register(spark)
    frame = (
        spark.read.format("rocketmq")
        .option("nameServer", broker.name_server)
        .option("topic", topic)
        .option("columnNames", "rocketmq-spark")
        .load()
    )
    assert {"body", "brokerName", "queueId", "queueOffset", "storeTimestamp"} <= set(frame.columns)
    assert frame.select("body").distinct().count() == 25


def test_a_schema_takes_what_it_names(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    broker.produce(topic, ["a", "b", "c"], tags="T")
    reader = spark.read.format("rmq").options(**broker.options).option("subscribe", topic)
    frame = reader.schema("offset LONG, value BINARY, tags STRING").load()
    expected = spark.createDataFrame(
        [(n, bytearray(body), "T") for n, body in enumerate([b"a", b"b", b"c"])],
        "offset bigint, value binary, tags string",
    )
    chispa.assert_df_equality(frame, expected)
    with pytest.raises(Exception, match="did you mean value"):
        reader.schema("valu BINARY").load().collect()


def test_ranges_and_tasks(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    with SyncProducer(broker.name_server) as producer:
        for queue_id in range(3):
            for number in range(10):
                message = OutgoingMessage(topic, f"{queue_id}:{number}".encode())
                producer.send(message, queue=MessageQueue(topic, "broker-a", queue_id))

    def read(**options: str) -> Any:
        reader = spark.read.format("rmq").options(**broker.options).options(**options)
        return reader.option("subscribe", topic).load()

    def values(**options: str) -> list[str]:
        return sorted(bytes(row.value).decode() for row in read(**options).collect())

    assert read().rdd.getNumPartitions() == 1
    assert read(minPartitions="5").rdd.getNumPartitions() == 5
    assert read(maxRecordsPerPartition="4").rdd.getNumPartitions() == 8
    everything = values()
    assert len(everything) == 30
    assert values(minPartitions="7", maxRecordsPerPartition="4") == everything
    starting = json.dumps({topic: {"broker-a": {"0": 8, "1": -1}}})
    ending = json.dumps({topic: {"broker-a": {"2": 1}}})
    assert values(startingOffsets=starting, endingOffsets=ending) == ["0:8", "0:9", "2:0"]
    assert values(startingOffsets="latest") == []
    assert values(startingOffsets="latest-1") == ["0:9", "1:9", "2:9"]
    assert values(endingTimestamp="1000") == []
    assert values(startingTimestamp="1000", endingTimestamp="2999-01-01T00:00:00Z") == everything


def test_tags(spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    for tag in ("A", "B", "C"):
        broker.produce(topic, [f"{tag}{n}" for n in range(5)], tags=tag)
    frame = spark.read.format("rmq").options(**broker.options).option("tags", "A || C").load(topic)
    assert {row.tags for row in frame.collect()} == {"A", "C"}
    assert frame.count() == 10


def test_big_messages_and_many_queues(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(64)
    big = [bytes([n]) * 1_000_000 for n in range(6)]
    broker.produce(topic, [*big, *(b"%d" % n for n in range(200))])
    frame = spark.read.format("rmq").options(**broker.options).schema("value BINARY").load(topic)
    found = [bytes(row.value) for row in frame.collect()]
    assert len(found) == 206
    assert sorted(v for v in found if len(v) == 1_000_000) == big


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"minPartitions": "none"}, "minPartitions='none'"),
        ({"rmq.secretkey": "s3cret-canary"}, "did you mean rmq.secret.key"),
        ({"topic": "nobody_made_this"}, "nobody_made_this does not exist"),
    ],
)
def test_mistakes_fail_on_the_driver(
    spark: Any, broker: EmbeddedBroker, options: dict[str, str], text: str
) -> None:
    given = {**broker.options, **({} if "topic" in options else {"subscribe": "t"}), **options}
    with pytest.raises(Exception, match=re.escape(text)) as failure:
        spark.read.format("rmq").options(**given).load().collect()
    assert "canary" not in str(failure.value)
