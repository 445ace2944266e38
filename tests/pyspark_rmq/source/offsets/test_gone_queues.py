"""Queues that are gone with unread messages: always reported as data loss."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest

from broker_core import EmbeddedCluster, MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from pyspark_rmq import connections
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.batch_plan import plan_batch
from pyspark_rmq.source.offsets.data_loss import DataLost
from pyspark_rmq.source.offsets.offset_planning import ranges_between
from pyspark_rmq.source.offsets.stream_position import StreamOffset
from pyspark_rmq.source.rows.range_reader import read_task
from pyspark_rmq.source.stream_session import Limits, StreamSession
from tests.pyspark_rmq.batch_stream import VALUE

BROKERS = ("broker-a", "broker-b")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(masters=2) as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """Two queues on each of two brokers, five messages in each."""
    name = f"t{abs(hash(request.node.name))}"
    with SyncAdmin(cluster.name_server) as admin:
        admin.create_topic(name, queue_count=2)
    fill(cluster, name)
    return name


def fill(cluster: EmbeddedCluster, topic: str, brokers: tuple[str, ...] = BROKERS) -> None:
    with SyncProducer(cluster.name_server) as producer:
        for broker in brokers:
            for queue_id in (0, 1):
                for number in range(5):
                    queue = MessageQueue(topic, broker, queue_id)
                    producer.send(OutgoingMessage(topic, b"%d" % number), queue=queue)


def shrink(cluster: EmbeddedCluster, topic: str, broker: str = "broker-b") -> None:
    with SyncAdmin(cluster.name_server) as admin:
        admin.create_topic(topic, queue_count=1, broker_names=[broker])


def delete(cluster: EmbeddedCluster, topic: str, broker: str = "broker-b") -> None:
    with SyncAdmin(cluster.name_server) as admin:
        admin.route(topic)
        command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        client = admin.asynchronous.client
        admin.call(client.routes.route(topic))
        answer = admin.call(client.request_broker(broker, command))
        assert answer.code == ResponseCode.SUCCESS


def options_of(cluster: EmbeddedCluster, topic: str, **more: str) -> SourceOptions:
    given = {
        **cluster.options,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "partition.metadata.cache.ttl.ms": "0",
        **more,
    }
    return SourceOptions.parse(given).for_stream()


class Query:
    """One run of a query in a driver of its own; positions pass through JSON as in a checkpoint."""

    def __init__(self, options: SourceOptions, available_now: bool = False) -> None:
        connections.close_connections()
        self.options = options
        self.connected = connections.connect(options.connection)
        self.session = StreamSession(self.connected.client, options)
        if available_now:
            self.session.fix_target()

    def initial(self) -> StreamOffset:
        return self.connected.call(self.session.initial())

    def latest(self, start: StreamOffset, rows: int | None = None) -> StreamOffset:
        end = self.connected.call(self.session.latest(start, Limits(rows), may_wait=False))
        if end is start:
            return start
        return StreamOffset.from_json(json.loads(json.dumps(end.to_json())))

    def close(self) -> None:
        self.connected.call(self.session.close())
        connections.close_connections()


GONE = {"shrunk": (shrink, 3), "deleted": (delete, 6)}
Change = Callable[[EmbeddedCluster, str], None]


def half_read(cluster: EmbeddedCluster, topic: str) -> StreamOffset:
    """The position after two messages of each of the four queues."""
    query = Query(options_of(cluster, topic))
    position = query.latest(query.initial(), rows=8)
    assert list(position.queues.values()) == [2, 2, 2, 2]
    query.close()
    return position


@pytest.mark.parametrize("kind", GONE)
@pytest.mark.parametrize("available_now", [True, False])
def test_unread_messages_of_a_gone_queue_are_loss(
    cluster: EmbeddedCluster,
    topic: str,
    kind: str,
    available_now: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = half_read(cluster, topic)
    change, unread = GONE[kind]
    change(cluster, topic)
    # A new driver, as after a restart.
    query = Query(options_of(cluster, topic), available_now)
    with pytest.raises(DataLost, match=rf"{unread} messages.*queue 1 of {topic} on broker-b"):
        query.latest(start)
    query.close()
    query = Query(options_of(cluster, topic, failOnDataLoss="false"), available_now)
    with caplog.at_level(logging.WARNING):
        end = query.latest(start)
        assert query.latest(end) is end
        assert query.latest(end) is end
    query.close()
    gone = {
        MessageQueue(topic, "broker-b", queue_id) for queue_id in ((1,) if unread == 3 else (0, 1))
    }
    read = {part.queue: part.rows for part in ranges_between(start, end)}
    assert read == dict.fromkeys(start.queues.keys() - gone, 3)
    told = [record for record in caplog.records if f"{unread} messages" in record.getMessage()]
    assert len(told) == 1
    # Should the queue come back, its offsets go on from there.
    assert all(end.queues[queue] == 2 for queue in gone)


@pytest.mark.parametrize("kind", GONE)
def test_a_running_stream_notices(cluster: EmbeddedCluster, topic: str, kind: str) -> None:
    query = Query(options_of(cluster, topic))
    start = query.latest(query.initial(), rows=8)
    change, unread = GONE[kind]
    change(cluster, topic)
    with pytest.raises(DataLost, match=rf"{unread} messages"):
        query.latest(start, rows=1)
    query.close()


@pytest.mark.parametrize("kind", GONE)
def test_before_the_first_batch(cluster: EmbeddedCluster, topic: str, kind: str) -> None:
    query = Query(options_of(cluster, topic), available_now=True)
    start = query.initial()
    change, unread = GONE[kind]
    change(cluster, topic)
    with pytest.raises(DataLost, match=rf"{5 * unread // 3} messages"):
        query.latest(start)
    query.close()


@pytest.mark.parametrize("kind", GONE)
def test_a_queue_that_was_read_to_its_end_may_go(
    cluster: EmbeddedCluster, topic: str, kind: str
) -> None:
    query = Query(options_of(cluster, topic))
    start = query.latest(query.initial())
    GONE[kind][0](cluster, topic)
    assert query.latest(start) is start
    query.close()
    query = Query(options_of(cluster, topic), available_now=True)
    assert query.latest(start) is start
    query.close()


def test_a_topic_that_is_deleted_everywhere(cluster: EmbeddedCluster, topic: str) -> None:
    start = half_read(cluster, topic)
    with SyncAdmin(cluster.name_server) as admin:
        admin.delete_topic(topic)
    query = Query(options_of(cluster, topic), available_now=True)
    with pytest.raises(DataLost, match=rf"12 messages.*{topic}"):
        query.latest(start)
    query.close()


@pytest.mark.parametrize("kind", GONE)
@pytest.mark.parametrize("short_circuit", ["off", "auto"])
def test_a_queue_that_goes_after_a_batch_was_planned(
    cluster: EmbeddedCluster,
    topic: str,
    kind: str,
    short_circuit: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A batch read, and a batch of a stream: the tasks find out."""
    options = options_of(cluster, topic, shortCircuit=short_circuit)
    connected = connections.connect(options.connection)
    [task] = connected.call(plan_batch(connected.client, options))
    change, unread = GONE[kind]
    change(cluster, topic)
    with pytest.raises(DataLost, match=rf"queue . of {topic} on broker-b.* 5 messages"):
        list(read_task(task, options, VALUE))
    careless = options_of(cluster, topic, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        rows = sum(batch.num_rows for batch in read_task(task, careless, VALUE))
    assert rows == 20 - 5 * unread // 3
    assert len([r for r in caplog.records if "5 messages" in r.getMessage()]) == unread // 3


def test_a_broker_that_is_away_is_not_gone(cluster: EmbeddedCluster, topic: str) -> None:
    start = half_read(cluster, topic)
    cluster.kill("broker-b:0")
    try:
        query = Query(options_of(cluster, topic))
        end = query.latest(start)
        assert {part.broker_name for part in ranges_between(start, end)} == {"broker-a"}
    finally:
        cluster.start()
    while (later := query.latest(end)) is end:
        pass
    assert {part.broker_name for part in ranges_between(end, later)} == {"broker-b"}
    query.close()
