"""Queries that begin anew under an old sinkId, and functions that set the job group; real Spark."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker
from tests.spark.stream_runs import QUERY_LIMIT_S

pytest.importorskip("pyspark")


class Inner:
    """A query whose function writes under a sinkId."""

    def __init__(self, spark: Any, broker: EmbeddedBroker, topic: str, work: Path) -> None:
        self.spark, self.broker, self.topic, self.work = spark, broker, topic, work
        self.sink = f"sink-{topic}-{uuid.uuid4()}"
        self.checkpoint = work / "checkpoint"
        (work / "in").mkdir()

    def feed(self, name: str, *rows: str) -> None:
        """One more file, which is one more batch."""
        (self.work / "in" / name).write_text("\n".join(rows) + "\n")

    def write(self, frame: Any, **options: str) -> None:
        writer = frame.select("value").write.format("rmq").options(**self.broker.options)
        writer = writer.option("topic", self.topic).option("sinkId", self.sink)
        writer.options(**options).mode("append").save()

    def run(self, function: Callable[[Any, int], None] | None = None) -> str:
        """To its end; returns the id of the query, or raises what it died of."""
        reader = self.spark.readStream.format("text").option("maxFilesPerTrigger", "1")
        query = (
            reader.load(str(self.work / "in"))
            .writeStream.foreachBatch(function or (lambda frame, batch: self.write(frame)))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_LIMIT_S)
        return str(query.id)

    def values(self) -> Counter[str]:
        return Counter(message.body.decode() for message in self.broker.consume(self.topic))


@pytest.fixture
def inner(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> Inner:
    return Inner(spark, broker, new_topic(2), tmp_path)


def test_a_deleted_checkpoint_drops_nothing(inner: Inner) -> None:
    inner.feed("0", "aaa", "bbb")
    first = inner.run()
    shutil.rmtree(inner.checkpoint)
    # As many rows and bytes in its batch 0, but other ones.
    inner.feed("0", "xxx", "yyy")
    with pytest.raises(Exception, match=f"belongs to query {first}.*another sinkId"):
        inner.run()
    assert inner.values() == Counter(["aaa", "bbb"])
    # The way on that the message names.
    inner.sink += "-new"
    inner.run()
    assert inner.values() == Counter(["aaa", "bbb", "xxx", "yyy"])


def test_a_deleted_checkpoint_drops_nothing_with_a_batch_id(inner: Inner) -> None:
    """The function gives the number of the batch itself, and the rows are the same again."""
    inner.feed("0", "aaa", "bbb")

    def function(frame: Any, batch: int) -> None:
        inner.write(frame, batchId=str(batch))

    first = inner.run(function)
    inner.run(function)
    assert inner.values() == Counter(["aaa", "bbb"])
    shutil.rmtree(inner.checkpoint)
    with pytest.raises(Exception, match=f"belongs to query {first}.*another sinkId"):
        inner.run(function)
    assert inner.values() == Counter(["aaa", "bbb"])


def test_a_restored_checkpoint_is_recognized(inner: Inner) -> None:
    inner.feed("0", "aaa")
    inner.run()
    shutil.copytree(inner.checkpoint, inner.work / "backup")
    inner.feed("1", "bbb")
    inner.run()
    shutil.rmtree(inner.checkpoint)
    (inner.work / "backup").rename(inner.checkpoint)
    inner.feed("1", "xxx")
    with pytest.raises(Exception, match="with other content"):
        inner.run()
    assert inner.values() == Counter(["aaa", "bbb"])


def test_a_job_group_that_the_function_sets(inner: Inner) -> None:
    """Each start is exactly one run, independent of the function."""
    inner.feed("0", "a")
    inner.feed("1", "b")
    inner.feed("2", "c")

    def function(frame: Any, batch: int, *, fails_at: int = -1) -> None:
        context = frame.sparkSession.sparkContext
        context.setJobGroup(f"mine-{batch % 2}", "my own text")
        context.addJobTag("mine")
        inner.write(frame)
        if batch == fails_at:
            raise RuntimeError("planted")

    # It is killed after its batch is published: the next start repeats that batch.
    for batch in (0, 1):
        with pytest.raises(Exception, match="planted"):
            inner.run(lambda frame, number, at=batch: function(frame, number, fails_at=at))
        # Spark takes the files in any order.
        assert sum(inner.values().values()) == batch + 1
    inner.run(function)
    assert inner.values() == Counter("abc")


def test_job_tags_that_the_function_removes(inner: Inner) -> None:
    """The job group that Spark has set tells the runs apart; without both nothing is written."""
    inner.feed("0", "a")

    def function(frame: Any, batch: int, *, fails: bool = False, group: str = "") -> None:
        context = frame.sparkSession.sparkContext
        context.clearJobTags()
        if group:
            context.setJobGroup(group, "my own text")
        inner.write(frame)
        if fails:
            raise RuntimeError("planted")

    with pytest.raises(Exception, match="clearJobTags and set the job group"):
        inner.run(lambda frame, number: function(frame, number, group="mine"))
    assert not inner.values()
    with pytest.raises(Exception, match="planted"):
        inner.run(lambda frame, number: function(frame, number, fails=True))
    inner.run(function)
    assert inner.values() == Counter("a")


def test_frames_of_another_session(inner: Inner) -> None:
    """The application's session is the same for all starts of the query."""
    inner.feed("0", "a")

    def function(frame: Any, batch: int, *, fails: bool = False) -> None:
        rows = [row.value for row in frame.select("value").collect()]
        inner.write(inner.spark.createDataFrame([(value,) for value in rows], "value STRING"))
        if fails:
            raise RuntimeError("planted")

    with pytest.raises(Exception, match="planted"):
        inner.run(lambda frame, number: function(frame, number, fails=True))
    inner.run(function)
    assert inner.values() == Counter("a")


def test_two_writes_of_one_function_under_one_sink(inner: Inner) -> None:
    """Told by the run, also after the function has set the job group in between."""
    inner.feed("0", "a")

    def twice(frame: Any, batch: int) -> None:
        inner.write(frame)
        frame.sparkSession.sparkContext.setJobGroup("other", "my own text")
        inner.write(frame)

    with pytest.raises(Exception, match="a sinkId of its own"):
        inner.run(twice)
    assert inner.values() == Counter("a")


@pytest.mark.parametrize("given", ["nothing", "checkpoint", "batchId"])
def test_a_second_write_stays_refused_when_the_query_starts_again(
    inner: Inner, new_topic: Callable[..., str], given: str
) -> None:
    """The first start is killed between the writes, so an earlier run published the batch."""
    inner.feed("0", "a", "b")
    other = new_topic(1)

    def function(frame: Any, batch: int, *, fails: bool = False) -> None:
        known = {"checkpoint": ("checkpointLocation", inner.checkpoint), "batchId": ("batchId", 0)}
        options = {name: str(value) for name, value in [known[given]]} if given in known else {}
        inner.write(frame.where("value = 'a'" if given == "checkpoint" else "true"), **options)
        if fails:
            raise RuntimeError("planted")
        inner.write(frame, **options, topic=other)

    with pytest.raises(Exception, match="planted"):
        inner.run(lambda frame, batch: function(frame, batch, fails=True))
    before = inner.values()
    for _ in range(2):
        with pytest.raises(Exception, match="a sinkId of its own"):
            inner.run(function)
    assert inner.values() == before
    assert not inner.broker.consume(other)
