"""Many queues, queues and topics that come and go: what the driver asks, and what is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from broker_core import BulkProducer, MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source import stream_session
from pyspark_rmq.source.offsets.offset_planning import plan_tasks, ranges_between
from pyspark_rmq.source.offsets.stream_position import StreamOffset
from pyspark_rmq.source.rows.message_batches import arrow_schema
from pyspark_rmq.source.rows.range_reader import Task, read_task
from pyspark_rmq.source.stream_session import Limits, StreamSession

VALUE = (ChosenColumn("value", "value"), ChosenColumn("partition", "partition"))
Options = Callable[..., SourceOptions]
Topics = Callable[..., str]


class Query:
    """A query that reads its batches as Spark would."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.connected = connections.connect(options.connection)
        self.session = StreamSession(self.connected.client, options)
        self.position: StreamOffset = self.connected.call(self.session.initial())

    def look(self) -> StreamOffset:
        return self.connected.call(self.session.latest(self.position, Limits(), may_wait=False))

    def read(self) -> list[dict[str, Any]]:
        """The rows of the next batch."""
        end = self.look()
        ranges = ranges_between(self.position, end)
        tasks = plan_tasks(ranges, end.row_sizes) if end is not self.position else []
        self.position = end
        batches = [
            batch
            for task in tasks
            for batch in read_task(Task(tuple(task), dict(end.stores)), self.options, VALUE)
        ]
        return pa.Table.from_batches(batches, arrow_schema(VALUE)).to_pylist()

    def close(self) -> None:
        self.connected.call(self.session.close())


@pytest.fixture
def query() -> Iterator[Callable[[SourceOptions], Query]]:
    made: list[Query] = []

    def make(options: SourceOptions) -> Query:
        made.append(Query(options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """What this process asks, by code."""
    from broker_core.remoting.client import RemotingClient

    codes: Counter[int] = Counter()
    request = RemotingClient.request

    async def counted(self: Any, address: str, command: Any, *rest: Any, **more: Any) -> Any:
        codes[command.code] += 1
        return await request(self, address, command, *rest, **more)

    monkeypatch.setattr(RemotingClient, "request", counted)
    return codes


def questions_of(deed: Callable[[], object], asked: Counter[int]) -> int:
    """How many questions something takes; routes are asked for besides, twice a minute."""
    counts = []
    for _ in range(3):
        asked.clear()
        deed()
        counts.append(sum(asked.values()))
    return min(counts)


def test_a_thousand_queues(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any,
    asked: Counter[int],
) -> None:  # fmt: skip
    topic = new_topic(1_000)
    running = query(options_of(subscribe=topic, startingOffsets="earliest"))
    connected = running.connected
    producer = BulkProducer(connected.client)
    for queue_id in range(0, 1_000, 3):
        bodies = [b"%d" % queue_id] * 2
        queue = MessageQueue(topic, "broker-a", queue_id)
        connected.call(producer.send_bodies(topic, bodies, queue=queue))
    rows = running.read()
    assert Counter(row["partition"] for row in rows) == dict.fromkeys(range(0, 1_000, 3), 2)
    assert all(row["value"] == b"%d" % row["partition"] for row in rows)
    # One request per look-up, for any number of queues.
    assert questions_of(lambda: [running.look() for _ in range(5)], asked) <= 5 + 1, asked


def test_what_a_batch_costs_the_driver(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any,
    asked: Counter[int],
) -> None:  # fmt: skip
    topic = new_topic(4)
    running = query(options_of(subscribe=topic, startingOffsets="earliest"))
    broker.produce(topic, [b"a"] * 8)
    running.read()
    for _ in range(3):
        with SyncProducer(broker.name_server) as producer:
            producer.send_many(OutgoingMessage(topic, b"b") for _ in range(8))
        assert running.look() is not running.position
        assert questions_of(running.look, asked) <= 2, asked


def test_a_topic_grows_from_4_to_16_queues(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(4)
    given = {"subscribe": topic, "partition__metadata__cache__ttl__ms": "0"}
    running = query(options_of(**given, startingOffsets="earliest"))
    seen: Counter[int] = Counter()
    for count in (4, 9, 16):
        broker.create_topic(topic, count)
        with SyncProducer(broker.name_server) as producer:
            for queue_id in range(count):
                queue = MessageQueue(topic, "broker-a", queue_id)
                producer.send(OutgoingMessage(topic, b"%d" % count), queue=queue)
        rows = running.read()
        assert {row["value"] for row in rows} == {b"%d" % count}
        seen.update(row["partition"] for row in rows)
    assert seen == {**dict.fromkeys(range(16), 1), **dict.fromkeys(range(9), 2),
                    **dict.fromkeys(range(4), 3)}  # fmt: skip


def test_a_topic_that_is_deleted(
    broker: EmbeddedBroker,
    new_topic: Topics,
    options_of: Options,
    query: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone, other = new_topic(2), new_topic(1)
    given = {"subscribe": f"{gone},{other}", "partition__metadata__cache__ttl__ms": "0"}
    strict = query(options_of(**given, startingOffsets="earliest"))
    lax = query(options_of(**given, startingOffsets="earliest", failOnDataLoss="false"))
    broker.produce(gone, [b"a"])
    assert [row["value"] for row in strict.read()] == [b"a"]
    lax.read()
    with SyncAdmin(broker.name_server) as admin:
        admin.delete_topic(gone)
    broker.produce(other, [b"b"])
    # Not at once: a broker that restarts is unknown to the name servers for a moment.
    assert [row["value"] for row in strict.read()] == [b"b"]
    monkeypatch.setattr(stream_session, "TOPIC_GRACE_S", 0.0)
    with pytest.raises(Exception, match=f"topic {gone} was read and no name server knows it"):
        strict.read()
    assert [row["value"] for row in lax.read()] == [b"b"]
    broker.produce(other, [b"c"])
    assert [row["value"] for row in lax.read()] == [b"c"]


def test_messages_of_a_megabyte(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(2)
    bodies = [bytes([number]) * (1 << 20) for number in range(20)]
    broker.produce(topic, bodies)
    for way in ("on", "off"):
        running = query(options_of(subscribe=topic, startingOffsets="earliest", shortCircuit=way))
        assert sorted(row["value"] for row in running.read()) == bodies
