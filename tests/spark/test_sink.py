"""Writes of a real Spark to a real broker: columns, modes, atomicity, errors."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker
from tests.spark.stream_runs import LATE, QUERY_LIMIT_S, run_to_end

pytest.importorskip("pyspark")


def values(broker: EmbeddedBroker, topic: str) -> Counter[str]:
    return Counter(message.body.decode() for message in broker.consume(topic))


def write(frame: Any, broker: EmbeddedBroker, topic: str = "", **options: str) -> None:
    writer = frame.write.format("rmq").options(**broker.options).options(**options).mode("append")
    (writer.option("topic", topic) if topic else writer).save()


def test_what_goes_in_comes_out(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    from chispa import assert_df_equality

    topic = new_topic(4)
    frame = spark.range(0, 5_000, 1, 3).selectExpr(
        "cast(concat('v', id) as binary) as value",
        "if(id % 3 = 0, null, concat('k', id)) as key",
        "if(id % 2 = 0, 'even', null) as tags",
        "cast(id % 4 as int) as partition",
        "map('n', cast(id as string)) as properties",
        "cast(id % 7 as int) as flag",
    )
    write(frame, broker, topic)
    schema = (
        "value BINARY, key STRING, tags STRING, partition INT, properties MAP<STRING,STRING>,"
        " flag INT"
    )
    back = spark.read.format("rmq").options(**broker.options).schema(schema).load(topic)
    names = ["value", "key", "tags", "partition", "flag"]
    assert_df_equality(
        frame.select(*names, "properties.n"),
        back.select(*names, "properties.n"),
        ignore_row_order=True,
        ignore_nullable=True,
    )


def test_a_job_that_fails_writes_nothing(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    frame = spark.range(0, 2_000, 1, 2).selectExpr(
        "if(id = 1999, raise_error('planted'), cast(id as string)) as value"
    )
    with pytest.raises(Exception, match="planted"):
        write(frame, broker, topic)
    assert not values(broker, topic)
    # A job that may be run again under its number.
    frame = spark.range(10).selectExpr("cast(id as string) as value")
    for _ in range(2):
        write(frame, broker, topic, sinkId=f"job-{topic}", batchId="20241116")
    assert values(broker, topic) == Counter(map(str, range(10)))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["'a' as value", "1 as extra"], {}, "cannot be written: extra"),
        (["'a' as key"], {}, "no column value"),
        (["'a' as value"], {"topik": "x"}, "did you mean topic"),
        (["'a' as value", "1 as delayLevel"], {"deliveryGuarantee": "exactly_once"}, "delayLevel"),
        (["'a' as value"], {"topic": "absent", "createTopic": "never"}, "does not exist"),
    ],
)
def test_clear_refusals(
    spark: Any, broker: EmbeddedBroker, columns: list[str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        write(spark.range(1).selectExpr(*columns), broker, **{"topic": "T", **options})


def test_a_missing_topic_is_made_as_the_broker_is_set_up(
    spark: Any, broker: EmbeddedBroker
) -> None:
    write(spark.range(10).selectExpr("cast(id as string) as value"), broker, "made_by_the_sink")
    assert values(broker, "made_by_the_sink") == Counter(map(str, range(10)))


def test_overwriting_is_refused(spark: Any, broker: EmbeddedBroker) -> None:
    frame = spark.range(1).selectExpr("'a' as value")
    with pytest.raises(Exception, match="cannot be overwritten"):
        frame.write.format("rmq").options(**broker.options).mode("overwrite").save("T")


class Stream:
    """A query from one topic to another on one checkpoint."""

    def __init__(self, spark: Any, broker: EmbeddedBroker, source: str, target: str, work: Path):
        self.spark, self.broker = spark, broker
        self.source, self.target, self.work = source, target, work

    def start(self, frame: Any = None, mode: str = "append", **trigger: Any) -> Any:
        rows = frame if frame is not None else self.rows()
        writer = (
            rows.writeStream.format("rmq")
            .options(**self.broker.options)
            .option("topic", self.target)
            .option("checkpointLocation", str(self.work / "checkpoint"))
            .outputMode(mode)
        )
        return (writer.trigger(**trigger) if trigger else writer).start()

    def rows(self) -> Any:
        reader = self.spark.readStream.format("rmq").options(**self.broker.options)
        return reader.option("startingOffsets", "earliest").load(self.source).select("value", "key")

    def run(self, frame: Any = None, mode: str = "append") -> None:
        run_to_end(lambda: self.start(frame, mode, availableNow=True))


@pytest.fixture
def stream(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> Stream:
    return Stream(spark, broker, new_topic(2), new_topic(4), tmp_path)


def test_a_stream_and_its_restarts(stream: Stream) -> None:
    broker = stream.broker
    broker.produce(stream.source, map(str, range(300)))
    stream.run()
    assert values(broker, stream.target) == Counter(map(str, range(300)))
    stream.run()
    broker.produce(stream.source, map(str, range(300, 400)))
    stream.run()
    assert values(broker, stream.target) == Counter(map(str, range(400)))
    # As after a crash between the publication and Spark's commit log.
    last = max((stream.work / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    stream.run()
    assert values(broker, stream.target) == Counter(map(str, range(400)))
    # As after a restore of an older checkpoint: the next range has the number of an old one.
    for folder in ("offsets", "commits"):
        for path in (stream.work / "checkpoint" / folder).glob(f"*{last.name}*"):
            path.unlink()
    broker.produce(stream.source, ["late"])
    with pytest.raises(Exception, match="older state"):
        stream.run()
    assert values(broker, stream.target) == Counter(map(str, range(400)))


def test_output_modes(stream: Stream) -> None:
    stream.broker.produce(stream.source, ["a", "b", "a"])
    counts = stream.rows().groupBy("value").count().selectExpr(
        "concat(cast(value as string), count) as value"
    )  # fmt: skip
    with pytest.raises(Exception, match="outputMode complete") as refused:
        stream.run(counts, "complete")
    assert (
        "outputMode complete would replace what a topic has, and a topic only grows: use append, or"
        ' write each batch with foreachBatch and df.write.format("rmq").option("sinkId", …), which'
        " works with complete and update\nSee docs/errors.md#output-mode"
    ) in str(refused.value)
    assert not values(stream.broker, stream.target)
    # Spark itself: a Python sink has no way to say that it takes updates as new rows.
    stream.work = stream.work / "another"
    with pytest.raises(Exception, match="does not support Update mode"):
        stream.run(counts, "update")


def test_a_query_is_stopped_in_the_middle_of_a_batch(stream: Stream, tmp_path: Path) -> None:
    broker = stream.broker
    broker.produce(stream.source, map(str, range(20)))
    entered = tmp_path / "entered"

    def slowly(batches: Any) -> Any:
        for batch in batches:
            entered.touch()
            # Spark ends this process when the query is stopped.
            while not (tmp_path / "go").exists():
                threading.Event().wait(0.1)
            yield batch

    slow = stream.rows().mapInArrow(slowly, "value binary, key string")
    query = stream.start(slow)
    for _ in range(10 * QUERY_LIMIT_S):
        if entered.exists():
            break
        if not query.isActive:
            assert LATE in str(query.exception())
            query = stream.start(slow)
        threading.Event().wait(0.1)
    assert entered.exists(), query.status
    query.stop()
    assert not values(broker, stream.target)
    (tmp_path / "go").touch()
    stream.run(slow)
    assert values(broker, stream.target) == Counter(map(str, range(20)))


def test_inside_foreach_batch(stream: Stream, new_topic: Callable[..., str]) -> None:
    broker, other = stream.broker, new_topic(1)
    broker.produce(stream.source, ["a", "b"])
    problems: list[str] = []

    def both(frame: Any, batch: int) -> None:
        write(frame, broker, stream.target, sinkId=f"one-{stream.target}")
        write(frame, broker, other, sinkId=f"two-{stream.target}")
        try:
            write(frame, broker, other, sinkId=f"two-{stream.target}")
        except Exception as error:
            problems.append(str(error))
            raise

    def once(frame: Any, batch: int) -> None:
        write(frame, broker, stream.target, sinkId=f"one-{stream.target}")
        write(frame, broker, other, sinkId=f"two-{stream.target}")

    def run(function: Any) -> None:
        writer = (
            stream.rows().writeStream.foreachBatch(function)
            .outputMode("update")
            .option("checkpointLocation", str(stream.work / "checkpoint"))
            .trigger(availableNow=True)
        )  # fmt: skip
        run_to_end(writer.start)

    with pytest.raises(Exception, match="a sinkId of its own"):
        run(both)
    # The batch is run again, and both writes know it.
    run(once)
    assert values(broker, stream.target) == values(broker, other) == Counter("ab")
