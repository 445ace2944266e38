"""A stream goes on at the slave while the master is away, and at the slave that takes its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_core import OutgoingMessage, SyncProducer
from broker_core.embedded.embedded_cluster import EmbeddedCluster
from tests.pyspark_rmq.batch_stream import BatchStream

TOPIC = "Orders"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(slaves_per_master=1, replication="sync", topics={TOPIC: 2}) as found:
        yield found


def _send(cluster: EmbeddedCluster, first: int, count: int) -> None:
    with SyncProducer(cluster.name_server) as producer:
        producer.send_many(OutgoingMessage(TOPIC, b"%d" % n) for n in range(first, first + count))


def test_a_new_topic_is_read_at_the_slave(cluster: EmbeddedCluster) -> None:
    """Its master died a moment after the first messages were acknowledged."""
    stream = BatchStream(cluster.name_server, TOPIC)
    try:
        _send(cluster, 0, 10)
        cluster.wait_in_sync()
        cluster.kill("broker-a:0")
        stream.read_until(10)
    finally:
        stream.close()


def test_a_stream_survives_the_loss_of_a_master_and_a_promotion(cluster: EmbeddedCluster) -> None:
    _send(cluster, 0, 50)
    stream = BatchStream(cluster.name_server, TOPIC)
    try:
        stream.read_until(50)
        _send(cluster, 50, 50)
        cluster.wait_in_sync()
        # These were never planned while the master was there: the slave reports them.
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
    assert sorted(stream.seen, key=int) == [b"%d" % number for number in range(140)]
