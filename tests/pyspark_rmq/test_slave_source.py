"""A stream goes on at the slave while the master is away, and at the slave that takes its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from broker_core import OutgoingMessage, SyncProducer
from broker_core.embedded.embedded_cluster import EmbeddedCluster
from pyspark_rmq import connections
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.message_batches import arrow_schema
from pyspark_rmq.source.offset_planning import plan_tasks, ranges_between
from pyspark_rmq.source.range_reader import Task, read_task
from pyspark_rmq.source.stream_session import Limits, StreamSession

VALUE = (ChosenColumn("value", "value"),)
TOPIC = "Orders"


class Stream:
    """A query that reads its batches as Spark would."""

    def __init__(self, name_server: str) -> None:
        given = {
            "rmq.namesrv.addr": name_server,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        self.options = SourceOptions.parse(given).for_stream()
        self.connected = connections.connect(self.options.connection)
        self.session = StreamSession(self.connected.client, self.options)
        self.position = self.connected.call(self.session.initial())
        self.seen: list[bytes] = []

    def read(self) -> int:
        """Take the next batch; how many rows it had."""
        end = self.connected.call(self.session.latest(self.position, Limits(), may_wait=False))
        if end is self.position:
            return 0
        tasks = plan_tasks(ranges_between(self.position, end), end.row_sizes)
        batches = [
            batch
            for task in tasks
            for batch in read_task(Task(tuple(task), dict(end.stores)), self.options, VALUE)
        ]
        rows: list[dict[str, Any]] = pa.Table.from_batches(batches, arrow_schema(VALUE)).to_pylist()
        self.position = end
        self.seen += [row["value"] for row in rows]
        return len(rows)

    def read_until(self, count: int) -> None:
        for _ in range(200):
            self.read()
            if len(self.seen) >= count:
                return
        raise AssertionError(f"{len(self.seen)} of {count} rows")

    def close(self) -> None:
        self.connected.call(self.session.close())


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(slaves_per_master=1, replication="sync", topics={TOPIC: 2}) as found:
        yield found


def _send(cluster: EmbeddedCluster, first: int, count: int) -> None:
    with SyncProducer(cluster.name_server) as producer:
        producer.send_many(OutgoingMessage(TOPIC, b"%d" % n) for n in range(first, first + count))


def test_a_stream_lives_through_the_loss_and_the_promotion(cluster: EmbeddedCluster) -> None:
    _send(cluster, 0, 50)
    stream = Stream(cluster.name_server)
    try:
        stream.read_until(50)
        _send(cluster, 50, 50)
        cluster.wait_in_sync()
        # These were never planned while the master was there: the slave tells of them.
        cluster.kill("broker-a:0")
        stream.read_until(100)
        assert stream.read() == 0
        # The master comes back, with the same log.
        cluster.restart("broker-a:0")
        cluster.wait_in_sync()
        _send(cluster, 100, 20)
        stream.read_until(120)
        # And is lost for good: offsets and checks of the stream hold at the new one.
        cluster.kill("broker-a:0")
        cluster.promote("broker-a:1")
        cluster.restart("broker-a:0")
        cluster.wait_in_sync()
        _send(cluster, 120, 20)
        stream.read_until(140)
    finally:
        stream.close()
        connections.close_connections()
    assert sorted(stream.seen, key=int) == [b"%d" % number for number in range(140)]
