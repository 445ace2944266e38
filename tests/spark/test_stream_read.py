"""`spark.readStream.format("rmq")` against our broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer
from broker_core.embedded.held_ports import HeldPorts
from broker_core.runtime.clock import SystemClock
from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.progress import lag_of
from tests.spark.stream_runs import QUERY_LIMIT_S, StreamRuns, run_to_now

pytest.importorskip("pyspark")

NewTopic = Callable[..., str]


def options(broker: EmbeddedBroker, topic: str, **more: str) -> dict[str, str]:
    return {**broker.options, "subscribe": topic, "startingOffsets": "earliest", **more}


def names(first: int, until: int) -> list[str]:
    return [f"m{number}" for number in range(first, until)]


def test_restarts_go_on_where_they_were(
    spark: Any, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(4)
    group = f"group_{topic}"
    more = {"maxOffsetsPerTrigger": "16", "rmq.group": group}
    runs = StreamRuns(spark, tmp_path / "c", options(broker, topic, **more))
    broker.produce(topic, names(0, 40))
    ended = runs.run()
    assert runs.sizes == [16, 16, 8]
    lag = lag_of(ended.lastProgress)
    assert lag is not None
    assert (lag.total, len(lag.queues)) == (0, 4)
    lags = [lag_of(report) for report in ended.recentProgress]
    assert [lag.total for lag in lags if lag is not None and lag.rows] == [24, 8, 0]
    broker.produce(topic, names(40, 60))
    runs.run()
    runs.run()
    assert runs.sizes == [16, 16, 8, 16, 4]
    assert sorted(runs.values) == sorted(names(0, 60))
    for queue_id in range(4):
        offsets = [row["offset"] for row in runs.rows if row["partition"] == queue_id]
        assert offsets == list(range(len(offsets)))
    with SyncAdmin(broker.name_server) as admin:
        committed = admin.committed_offsets(group, topic)
        ends = admin.topic_offsets(topic)
    # The last batch is known to be done only when Spark asks for the next one.
    assert {queue: offset or 0 for queue, offset in committed.items()} == {
        queue: end for queue, (_, end) in ends.items()
    }


def read_until(query: Any, runs: StreamRuns, count: int) -> None:
    """Wait for rows that the query may not see at once: it has to find queues and brokers first."""
    clock = SystemClock()
    until = clock.monotonic() + QUERY_LIMIT_S
    while len(runs.rows) < count:
        assert clock.monotonic() < until, f"{len(runs.rows)} rows of {count}"
        query.processAllAvailable()


def test_a_running_query_follows(
    spark: Any, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    # New rows, new queues, a broker that restarts, and a topic that comes to match the pattern.
    topic = new_topic(2)
    given = options(broker, topic, **{"partition.metadata.cache.ttl.ms": "0"})
    del given["subscribe"], given["startingOffsets"]
    given["subscribePattern"] = f"{topic}(_more)?"
    broker.produce(topic, names(0, 5))
    runs = StreamRuns(spark, tmp_path / "c", given, "value BINARY, topic STRING, partition INT")
    query = run_to_now(runs.start)
    try:
        assert runs.values == []
        broker.produce(topic, names(5, 15))
        read_until(query, runs, 10)
        assert sorted(runs.values) == sorted(names(5, 15))
        broker.create_topic(topic, 6)
        with SyncProducer(broker.name_server) as producer:
            message = OutgoingMessage(topic, b"m15")
            producer.send(message, queue=MessageQueue(topic, "broker-a", 5))
        read_until(query, runs, 11)
        assert runs.values[-1] == "m15"
        broker.restart()
        broker.produce(topic, names(16, 20))
        read_until(query, runs, 15)
        broker.create_topic(f"{topic}_more", 1)
        broker.produce(f"{topic}_more", names(20, 22))
        read_until(query, runs, 17)
        assert sorted(runs.values) == sorted(names(5, 22))
        assert query.exception() is None
        assert list(runs.rows[0].asDict()) == ["value", "topic", "partition"]
    finally:
        query.stop()


def test_loss_fails_the_query_unless_it_may_go_on(spark: Any, tmp_path: Path) -> None:
    held = HeldPorts()
    places: Any = {"name_server_port": held.hold(), "broker_port": held.hold()}
    with EmbeddedBroker(topics={"t": 1}, **places) as old:
        runs = StreamRuns(spark, tmp_path / "c", options(old, "t"))
        old.produce("t", names(0, 5))
        runs.run()
    # Its disk is lost; a new one takes its place, and offsets of the old one mean nothing here.
    with EmbeddedBroker(topics={"t": 1}, **places) as replacement:
        replacement.produce("t", names(5, 12))
        with pytest.raises(Exception, match="another store") as failure:
            runs.run()
        assert "failOnDataLoss=false" in str(failure.value)
        runs.options["failOnDataLoss"] = "false"
        runs.run()
    held.release()
    assert runs.values == names(0, 12)


def test_once_ignores_limits(
    spark: Any, broker: EmbeddedBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    given = options(broker, topic, maxOffsetsPerTrigger="3", tags="A")
    runs = StreamRuns(spark, tmp_path / "c", given)
    broker.produce(topic, names(0, 9), tags="A")
    broker.produce(topic, names(9, 19), tags="B")
    runs.run(once=True)
    assert sorted(runs.values) == sorted(names(0, 9))
    assert len(runs.batches) == 1


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"maxOffsetsPerTriger": "5"}, "did you mean maxOffsetsPerTrigger"),
    ],
)
def test_mistakes_fail_on_the_driver(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, more: dict[str, str], text: str
) -> None:
    runs = StreamRuns(spark, tmp_path / "c", options(broker, "t", **more))
    with pytest.raises(Exception, match=re.escape(text)):
        runs.run()
