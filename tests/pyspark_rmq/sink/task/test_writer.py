"""Tasks and commits as Spark would run them, in every order that it may run them, without Spark."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from broker_core import SyncPullConsumer, batch_from_arrow, digest_rows, errors
from pyspark_rmq import EmbeddedBroker, progress
from pyspark_rmq.sink.guarantee import decide_guarantee
from pyspark_rmq.sink.publication import abort_batch, batch_content, publish_batch
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.outgoing_columns import OVERSIZE_PROPERTY, ROW_PROPERTY
from pyspark_rmq.sink.task.result import TaskIdentity, TaskResult
from pyspark_rmq.sink.task.sink_columns import find_columns
from pyspark_rmq.sink.task.writer import write_task

SPARK = {pa.binary(): "binary", pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint"}

# What becomes of batches is noted for the user, by sink, and outlives a run of tests.
_THIS_RUN = uuid.uuid4().hex


class Sink:
    """Writes to one topic as a query would."""

    def __init__(self, broker: EmbeddedBroker, topic: str, **given: str) -> None:
        self.broker = broker
        self.topic = topic
        self.options = SinkOptions.parse(
            {**broker.options, "topic": topic, "deliveryGuarantee": "exactly_once", **given}
        )
        self.query = f"query-{_THIS_RUN}-{topic}"

    def write(
        self,
        batch: int,
        values: Sequence[str],
        partition: int = 0,
        attempt: int = 0,
        run: str = "run-1",
        **columns: Any,
    ) -> TaskResult:
        rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string()), **columns})
        return self.write_batches(batch, [rows], partition, attempt, run)

    def write_batches(
        self,
        batch: int,
        batches: Any,
        partition: int = 0,
        attempt: int = 0,
        run: str = "run-1",
        fields: Any = (("value", "string"),),
    ) -> TaskResult:
        if isinstance(batches, list):
            fields = [(f.name, SPARK[f.type]) for f in batches[0].schema]
        columns = find_columns(fields, self.options)
        identity = TaskIdentity(
            self.options.sink_id or self.query, batch, run, partition, attempt, 0,
            lineage=self.options.lineage,
        )  # fmt: skip
        guarantee = decide_guarantee(self.options, columns)
        return write_task(batches, self.options, columns, guarantee, identity)

    def commit(self, *results: TaskResult) -> None:
        publish_batch(self.options, results)

    def abort(self, *results: TaskResult) -> None:
        abort_batch(self.options, results)

    def values(self, topic: str = "") -> Counter[str]:
        return Counter(m.body.decode() for m in self.broker.consume(topic or self.topic))


@pytest.fixture
def sink(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> Callable[..., Sink]:
    return lambda **given: Sink(broker, new_topic(4), **given)


def numbered(first: int, count: int) -> list[str]:
    return [f"m{number}" for number in range(first, first + count)]


def test_nothing_is_visible_before_the_commit(sink: Callable[..., Sink]) -> None:
    own = sink()
    first = own.write(0, numbered(0, 50), 0)
    second = own.write(0, numbered(50, 50), 1)
    assert not own.values()
    own.commit(first, second)
    assert own.values() == Counter(numbered(0, 100))
    assert (first.row_count, first.size) == (50, 140)


def test_a_commit_that_comes_again_changes_nothing(sink: Callable[..., Sink]) -> None:
    own = sink()
    own.commit(own.write(0, ["a"]))
    # As after a crash before Spark's commit log: another run writes the batch again.
    again = own.write(0, ["a"], run="run-2")
    own.commit(again)
    own.commit(again)
    assert own.values() == Counter("a")
    own.commit(own.write(1, ["b"], run="run-2"))
    assert own.values() == Counter("ab")


def test_a_replay_may_give_other_rows_when_the_range_is_the_same(
    sink: Callable[..., Sink], tmp_path: Path
) -> None:
    own = sink(checkpointLocation=str(tmp_path))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n10")
    own.commit(own.write(0, ["random-1"]))
    own.commit(own.write(0, ["random-2", "random-3"], run="run-2"))
    assert own.values() == Counter(["random-1"])


def test_a_restored_checkpoint_is_refused(sink: Callable[..., Sink], tmp_path: Path) -> None:
    own = sink(checkpointLocation=f"file://{tmp_path}")
    (tmp_path / "offsets").mkdir()
    for batch in range(3):
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{batch}")
        own.commit(own.write(batch, [f"b{batch}"]))
    (tmp_path / "offsets" / "2").write_text("v1\n{}\nanother range")
    with pytest.raises(errors.SinkContentDiffers, match="older state"):
        own.commit(own.write(2, ["b2"], run="run-2"))
    (tmp_path / "offsets" / "1").write_text("v1\n{}\nanother range")
    with pytest.raises(errors.RmqError, match="older state"):
        own.commit(own.write(1, ["b1"], run="run-2"))
    assert own.values() == Counter(["b0", "b1", "b2"])


def test_a_copied_checkpoint_is_refused(sink: Callable[..., Sink], tmp_path: Path) -> None:
    own = sink(checkpointLocation=str(tmp_path / "one"))
    own.commit(own.write(0, ["a"]))
    other = Sink(own.broker, own.topic, checkpointLocation=str(tmp_path / "two"))
    with pytest.raises(errors.SinkFenced, match="copied checkpoint"):
        other.write(1, ["b"], run="run-2")
    assert own.values() == Counter("a")


def test_without_a_checkpoint_the_rows_are_compared(sink: Callable[..., Sink]) -> None:
    own = sink()
    own.commit(own.write(0, ["aaa"]))
    with pytest.raises(errors.SinkContentDiffers):
        own.commit(own.write(0, ["aaa", "b"], run="run-2"))
    result = own.write(1, ["c", "dd"], run="run-2")
    content = batch_content("hdfs://n/c", [result])
    assert content == batch_content("", [result])
    assert content.startswith("rows:2:3:")


def test_only_the_attempt_that_won_is_published(sink: Callable[..., Sink]) -> None:
    own = sink()
    lost = own.write(0, ["a"], attempt=0)
    won = own.write(0, ["a"], attempt=1)
    other = own.write(0, ["b"], partition=1)
    own.commit(won, other)
    assert own.values() == Counter("ab")
    with pytest.raises(errors.StagingRefused):
        # Swept with the batch.
        own.commit(own.write(1, ["c"])._replace(parts=lost.parts))
    assert own.values() == Counter("ab")


def test_a_task_that_fails_leaves_nothing(sink: Callable[..., Sink]) -> None:
    own = sink()

    def failing() -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"value": pa.array(numbered(0, 1_000), pa.string())})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        own.write_batches(0, failing())
    own.commit(own.write(0, ["a"], attempt=1))
    assert own.values() == Counter("a")


def test_aborts_in_any_order(sink: Callable[..., Sink]) -> None:
    own = sink()
    first = own.write(0, ["a"])
    own.abort(first)
    with pytest.raises(errors.StagingRefused):
        own.commit(first)
    second = own.write(0, ["a"], run="run-2")
    own.commit(second)
    # Spark aborts with every message when a commit raised, for example because it never heard back.
    own.abort(second)
    own.abort()
    assert own.values() == Counter("a")
    # A write of the aborted run that ends late.
    with pytest.raises(errors.SinkFenced, match="replaced by run run-2"):
        own.write(0, ["zombie"])


def test_a_commit_that_is_late(sink: Callable[..., Sink]) -> None:
    own = sink()
    held = own.write(0, ["a"])
    again = own.write(0, ["a"], run="run-2")
    own.commit(again)
    own.commit(own.write(1, ["b"], run="run-2"))
    with pytest.raises(errors.SinkFenced):
        own.commit(held)
    assert own.values() == Counter("ab")


def test_two_drivers_on_one_checkpoint(sink: Callable[..., Sink]) -> None:
    own = sink()
    of_first = own.write(0, ["a"], run="run-1")
    of_second = own.write(0, ["a"], run="run-2")
    with pytest.raises(errors.SinkFenced):
        own.commit(of_first)
    own.commit(of_second)
    with pytest.raises(errors.SinkFenced):
        own.write(1, ["b"], run="run-1")
    assert own.values() == Counter("a")


def test_messages_of_two_batches_are_refused(sink: Callable[..., Sink]) -> None:
    own = sink()
    with pytest.raises(errors.InvalidArgument, match="different batches"):
        own.commit(own.write(0, ["a"]), own.write(1, ["b"]))


def test_an_empty_batch_needs_no_broker(sink: Callable[..., Sink]) -> None:
    own = sink()
    empty = own.write(0, [])
    assert empty.parts == ()
    own.commit(empty)
    own.commit(own.write(1, ["a"]))
    assert own.values() == Counter("a")


def test_many_rows_in_order_with_all_columns(sink: Callable[..., Sink]) -> None:
    own = sink()
    count = 20_000
    batches = []
    for first in range(0, count, 7_000):
        numbers = range(first, min(first + 7_000, count))
        batches.append(
            pa.RecordBatch.from_pydict(
                {
                    "value": pa.array([b"%d" % n for n in numbers], pa.binary()),
                    "key": pa.array([f"k{n}" for n in numbers]),
                    "tags": pa.array(["even" if n % 2 == 0 else None for n in numbers]),
                    "shardingKey": pa.array([f"s{n % 10}" for n in numbers]),
                    "flag": pa.array([n // 5_000 for n in numbers], pa.int32()),
                }
            )
        )
    own.commit(own.write_batches(0, batches))
    queue_of: dict[str, int] = {}
    last: dict[str, int] = {}
    seen = 0
    for message in own.broker.consume(own.topic):
        number = int(message.body)
        shard = message.properties["__SHARDINGKEY"]
        assert shard == f"s{number % 10}"
        assert queue_of.setdefault(shard, message.queue.queue_id) == message.queue.queue_id
        assert last.get(shard, -1) < number
        last[shard] = number
        assert (message.keys, message.tags) == (f"k{number}", "even" if number % 2 == 0 else "")
        assert message.flag == number // 5_000
        seen += 1
    assert seen == count


def test_a_reader_never_sees_a_part_of_a_batch(
    broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    own = Sink(broker, new_topic(1))
    seen: set[int] = set()
    is_over = threading.Event()

    def poll() -> None:
        with SyncPullConsumer(broker.name_server) as consumer:
            [queue] = consumer.queues(own.topic)
            offset = 0
            while not is_over.is_set():
                seen.add(consumer.max_offset(queue))
                pulled = consumer.pull(queue, offset, max_count=10_000, max_bytes=1 << 24)
                offset = pulled.next_offset
                seen.add(pulled.max_offset)

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        for batch in range(5):
            staged = own.write(batch, numbered(0, 3_000))
            own.abort(own.write(batch, ["aborted"], partition=1))
            own.commit(staged)
            # However slowly it reads, it must come by between two batches.
            while 3_000 * (batch + 1) not in seen and reader.is_alive():
                is_over.wait(0.001)
    finally:
        is_over.set()
        reader.join()
    assert {3_000 * count for count in range(1, 6)} <= seen
    assert seen <= {3_000 * count for count in range(6)}
    assert own.values().total() == 15_000


def test_topics_by_column_and_made_on_the_way(broker: EmbeddedBroker) -> None:
    own = Sink(broker, "unused", createTopic="ifMissing", **{"topic.queues": "2"})
    own.options = SinkOptions.parse(
        {**broker.options, "createTopic": "ifMissing", "topic.queues": "2"}
    )
    topics = pa.array(["made-1", "made-2", "made-1"])
    own.commit(own.write(0, ["a", "b", "c"], topic=topics))
    assert own.values("made-1") == Counter("ac")
    assert own.values("made-2") == Counter("b")
    own.options = SinkOptions.parse({**broker.options, "createTopic": "never"})
    with pytest.raises(errors.InvalidArgument, match="'absent' does not exist"):
        own.write(1, ["a"], topic=pa.array(["absent"]))


def test_at_least_once_names_its_rows(sink: Callable[..., Sink]) -> None:
    own = sink(deliveryGuarantee="at_least_once")
    result = own.write(3, ["a", "b"], partition=5)
    assert own.values() == Counter("ab")
    assert sum(count for _, _, count in result.ranges.values()) == 2
    # A second attempt sends again, under the same names.
    own.write(3, ["a", "b"], partition=5, attempt=1)
    own.commit(result)
    named = {m.properties[ROW_PROPERTY]: m.body for m in own.broker.consume(own.topic)}
    assert named == {f"{own.query}:3:5:0": b"a", f"{own.query}:3:5:1": b"b"}
    assert own.values() == Counter("aabb")


def test_at_least_once_by_key_and_by_queue(sink: Callable[..., Sink]) -> None:
    own = sink(deliveryGuarantee="at_least_once")
    own.write(0, numbered(0, 500), partition=0, shardingKey=pa.array(["x", "y"] * 250))
    places: dict[str, list[int]] = {}
    for message in own.broker.consume(own.topic):
        key = message.properties["__SHARDINGKEY"]
        places.setdefault(f"{key}{message.queue.queue_id}", []).append(int(message.body[1:]))
    assert {name[0] for name in places} == {"x", "y"}
    assert len(places) == 2
    assert all(found == sorted(found) for found in places.values())


def test_delayed_rows_go_one_by_one(sink: Callable[..., Sink]) -> None:
    own = sink(deliveryGuarantee="auto")
    levels = pa.array([None, 1, 0], pa.int32())
    result = own.write(0, ["now", "later", "too"], delayLevel=levels)
    assert result.guarantee == "at_least_once"
    limit = time.monotonic() + 300
    while own.values() != Counter(["now", "later", "too"]):
        assert time.monotonic() < limit, own.values()
    found = {message.body: message for message in own.broker.consume(own.topic)}
    assert found[b"later"].store_timestamp >= found[b"later"].born_timestamp + 1_000


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_long_rows_travel_compressed(sink: Callable[..., Sink], guarantee: str) -> None:
    own = sink(deliveryGuarantee=guarantee, compression="zlib")
    values = ["short", "x" * 50_000, "y" * 20_000]
    own.commit(own.write(0, values))
    found = own.broker.consume(own.topic)
    assert Counter(message.body.decode() for message in found) == Counter(values)
    assert all(message.size < 2_000 for message in found)


def test_the_digest_does_not_depend_on_how_rows_travel(sink: Callable[..., Sink]) -> None:
    """It is compared with that of a replay, which may run with other options."""
    values = ["short", "x" * 50_000, "y" * 20_000]
    columns = {
        "tags": pa.array(["a", None, "b"], pa.string()),
        "key": pa.array(["k", "", None], pa.string()),
        "flag": pa.array([0, 7, 7], pa.int32()),
    }
    rows = batch_from_arrow(
        pa.array(values, pa.string()), (), tags=columns["tags"], keys=columns["key"]
    )
    expected = digest_rows(rows, np.array([0, 7, 7], np.int32))
    for options in ({}, {"shortCircuit": "off"}, {"compression": "zlib"}):
        written = sink(**options).write(0, values, **columns)
        assert written.digest % (1 << 64) == expected
        assert written.size == sum(map(len, values))


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_rows_that_are_too_large_leave_a_trace(
    sink: Callable[..., Sink], new_topic: Callable[..., str], guarantee: str
) -> None:
    large = new_topic(1)
    own = sink(
        deliveryGuarantee=guarantee, maxMessageSize="10", oversizePolicy="dlq", oversizeTopic=large
    )
    result = own.write(0, ["fits", "0123456789abc"])
    own.commit(result)
    assert (result.row_count, result.oversize_count) == (2, 1)
    assert own.values() == Counter(["fits"])
    [cut] = own.broker.consume(large)
    assert (cut.body, cut.properties[OVERSIZE_PROPERTY]) == (b"0123456789", "13")


def test_rows_that_come_later_by_the_clock(sink: Callable[..., Sink]) -> None:
    own = sink(deliveryGuarantee="auto")
    due = int(time.time() * 1000) + 600_000
    result = own.write(0, ["now", "later"], deliverAt=pa.array([None, due], pa.int64()))
    assert result.guarantee == "at_least_once"
    assert own.values() == Counter(["now"])


def test_without_waiting_for_disks(sink: Callable[..., Sink]) -> None:
    own = sink(deliveryGuarantee="at_least_once", waitStoreOk="false")
    own.write(0, ["a"])
    assert own.values() == Counter("a")


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_what_became_of_each_batch(sink: Callable[..., Sink], guarantee: str) -> None:
    own = sink(deliveryGuarantee=guarantee, maxMessageSize="3", oversizePolicy="drop")
    first = own.write(0, ["a", "bc", "too long"])
    own.commit(first)
    own.commit(own.write(1, ["d"]))
    if guarantee == "exactly_once":
        own.commit(own.write(1, ["d"], run="run-2"))
    found = progress.sink_batches(own.query)
    assert [batch[:8] for batch in found[:2]] == [
        (own.query, 0, guarantee, 2, 3, 1, 0, False),
        (own.query, 1, guarantee, 1, 1, 0, 0, False),
    ]
    assert [batch.is_repeat for batch in found[2:]] == [True] * (guarantee == "exactly_once")
    queues = found[0].offsets[own.topic]["broker-a"]
    assert sum(after - low for low, after in queues.values()) == 2
    assert f"batch 0 of sink {own.query}: 2 rows, 3 bytes, 1 too large" in found[0].line()
    assert progress.sink_batches("nobody") == []


def test_the_broker_is_killed_between_write_and_commit(tmp_path: Path) -> None:
    with EmbeddedBroker(store=tmp_path / "store", topics={"T": 2}) as broker:
        own = Sink(broker, "T")
        own.commit(own.write(0, ["a"]))
        result = own.write(1, numbered(0, 100))
        broker.kill()
        broker.start()
        own.commit(result)
        broker.kill()
        broker.start()
        own.commit(result)
        assert own.values() == Counter(["a", *numbered(0, 100)])
