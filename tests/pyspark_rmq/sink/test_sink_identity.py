"""Identity of batches: queries, contents and checkpoints that reuse a sinkId."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import errors
from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.sink.publication import publish_batch
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.result import JOBS, TaskIdentity, TaskResult
from pyspark_rmq.sink.task.sink_columns import find_columns
from pyspark_rmq.sink.task.writer import write_task


class Query:
    """A query that writes under a sinkId as `foreachBatch` does; each start is a new run."""

    def __init__(self, broker: EmbeddedBroker, topic: str, sink: str, **given: str) -> None:
        self.broker, self.topic = broker, topic
        self.id = str(uuid.uuid4())
        self.run = ""
        self.options = SinkOptions.parse(
            {**broker.options, "topic": topic, "sinkId": sink, **given}
        )
        self.start()

    def start(self) -> Query:
        self.run = str(uuid.uuid4())
        return self

    def task(self, batch: int, rows: list[str], partition: int = 0, **columns: Any) -> TaskResult:
        found = pa.RecordBatch.from_pydict({"value": pa.array(rows, pa.string()), **columns})
        fields = [(name, "string") for name in found.schema.names]
        who = TaskIdentity(
            self.options.sink_id, batch, self.run, partition, 0, 0, lineage=self.options.lineage,
            query=self.id,
        )  # fmt: skip
        columns_found = find_columns(fields, self.options)
        return write_task([found], self.options, columns_found, "exactly_once", who)

    def write(self, batch: int, *tasks: list[str]) -> None:
        results = [self.task(batch, rows, number) for number, rows in enumerate(tasks)]
        publish_batch(self.options, results)

    def values(self) -> Counter[str]:
        return Counter(m.body.decode() for m in self.broker.consume(self.topic))


@pytest.fixture
def query(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> Callable[..., Query]:
    topic = new_topic(4)
    return lambda **given: Query(broker, topic, f"sink-{topic}-{uuid.uuid4()}", **given)


def successor(old: Query, **given: str) -> Query:
    """Another query under the same sinkId: its checkpoint is new."""
    return Query(old.broker, old.topic, old.options.sink_id, **given)


def test_a_query_whose_checkpoint_was_deleted_is_refused(query: Callable[..., Query]) -> None:
    """Other rows of the same number and size were answered 'published before' and dropped."""
    first = query()
    first.write(0, ["aaa", "bbb"])
    first.write(1, ["ccc"])
    again = successor(first)
    with pytest.raises(errors.SinkFenced) as refusal:
        again.write(0, ["xxx", "yyy"])
    text = str(refusal.value)
    assert first.id in text
    assert again.id in text
    assert "another sinkId" in text
    assert "with its checkpoint" in text
    # Neither the same rows nor later batches get in, and the first query goes on.
    for batch, rows in ((0, ["aaa", "bbb"]), (1, ["ccc"]), (2, ["new"])):
        with pytest.raises(errors.SinkFenced, match=first.id):
            again.write(batch, rows)
    first.start().write(1, ["ccc"])
    first.write(2, ["ddd"])
    assert first.values() == Counter(["aaa", "bbb", "ccc", "ddd"])


def test_the_broker_remembers_the_query(query: Callable[..., Query], tmp_path: Path) -> None:
    with EmbeddedBroker(store_dir=str(tmp_path)) as broker:
        broker.create_topic("T", 1)
        first = Query(broker, "T", "S")
        first.write(0, ["a"])
    with EmbeddedBroker(store_dir=str(tmp_path)) as broker:
        with pytest.raises(errors.SinkFenced, match=first.id):
            Query(broker, "T", "S").write(0, ["b"])
        assert Query(broker, "T", "S2").write(0, ["c"]) is None


def test_a_restored_checkpoint_is_recognized_by_content(query: Callable[..., Query]) -> None:
    own = query()
    own.write(0, ["aaa"])
    own.write(1, ["bbb"])
    own.start()
    # As many rows and bytes, other rows.
    for batch in (1, 0):
        with pytest.raises(errors.SinkContentDiffers, match="older state"):
            own.write(batch, ["xxx"])
    assert own.values() == Counter(["aaa", "bbb"])


@pytest.mark.parametrize(
    "changed", [{"key": "k2"}, {"tags": "t2"}, {"shardingKey": "s2"}, {"value": "b"}]
)
def test_every_column_counts(query: Callable[..., Query], changed: dict[str, str]) -> None:
    own = query()
    row = {"value": "a", "key": "k1", "tags": "t1", "shardingKey": "s1"}

    def write(values: dict[str, str]) -> None:
        columns = {name: pa.array([text]) for name, text in values.items() if name != "value"}
        publish_batch(own.options, [own.task(0, [values["value"]], **columns)])

    write(row)
    own.start()
    write(row)
    with pytest.raises(errors.SinkContentDiffers):
        write({**row, **changed})
    assert own.values() == Counter("a")


def test_a_replay_may_split_its_rows_in_another_way(query: Callable[..., Query]) -> None:
    own = query()
    own.write(0, ["a", "b", "c"], ["d", "a"])
    own.start().write(0, ["d"], ["c", "a"], [], ["a", "b"])
    own.write(1, ["e"])
    assert own.values() == Counter("abcdae")


def test_rows_that_come_twice_count_twice(query: Callable[..., Query]) -> None:
    own = query()
    own.write(0, ["a", "a", "b", "b"])
    with pytest.raises(errors.SinkContentDiffers):
        own.start().write(0, ["a", "a", "a", "b"])


def test_a_query_that_gives_other_rows_each_time(
    query: Callable[..., Query], tmp_path: Path
) -> None:
    """With the checkpoint as an option of the write, the range that Spark wrote down decides."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n10")
    own = query(checkpointLocation=str(tmp_path))
    own.write(0, ["random-1"])
    own.start().write(0, ["random-2", "random-3"])
    assert own.values() == Counter(["random-1"])
    # The same rows of another range are another batch.
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n20")
    with pytest.raises(errors.SinkContentDiffers, match="older state"):
        own.start().write(0, ["random-1"])


def test_empty_batches(query: Callable[..., Query]) -> None:
    own = query()
    own.write(0, [])
    own.write(1, ["a"])
    # A replay that has no rows this time, and one that has some where there were none.
    own.start().write(1, [])
    own.write(2, [])
    own.start().write(2, ["b"])
    assert own.values() == Counter("ab")
    # Nothing can be lost with an empty batch of another query; one with rows is refused.
    other = successor(own)
    other.write(0, [])
    with pytest.raises(errors.SinkFenced, match=own.id):
        other.write(1, ["c"])


def test_jobs_with_one_batch_id_and_different_topics(
    query: Callable[..., Query], new_topic: Callable[..., str]
) -> None:
    """The rows of the second job were dropped, and it ended well."""
    jobs = query()
    jobs.id = JOBS
    jobs.write(5, ["a"], ["b"])
    # Another run of the same job, with another split.
    jobs.start().write(5, ["a", "b"])
    other = Query(jobs.broker, new_topic(2), jobs.options.sink_id)
    other.id = JOBS
    with pytest.raises(errors.SinkContentDiffers, match="or two jobs have the same batchId"):
        other.write(5, ["a", "b"])
    # Named by a column: one of the rows has another topic.
    column = Query(jobs.broker, jobs.topic, jobs.options.sink_id)
    column.options = dataclasses.replace(column.options, topic="")
    column.id = JOBS

    def by_column(*topics: str) -> None:
        task = column.start().task(5, ["a", "b"], topic=pa.array(topics))
        publish_batch(column.options, [task])

    by_column(jobs.topic, jobs.topic)
    with pytest.raises(errors.SinkContentDiffers):
        by_column(jobs.topic, other.topic)
    assert jobs.values() == Counter("ab")
    assert not other.values()
