"""Conditions: what they parse to, what they leave of a queue, and that nothing else is read."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncProducer, errors
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.columns import ROCKETMQ_SPARK, ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.batch_plan import plan_batch
from pyspark_rmq.source.rows import predicates
from pyspark_rmq.source.rows.message_batches import arrow_schema
from pyspark_rmq.source.rows.predicates import NO_LIMIT, Predicate, Reach, parse_where
from pyspark_rmq.source.rows.range_reader import read_task

UTC = datetime.timezone.utc
VALUE = (ChosenColumn("value", "value"),)
NOON = datetime.datetime(2024, 5, 31, 12, tzinfo=UTC)


def parsed(text: str, naming: str = "default") -> list[tuple[Any, ...]]:
    return [tuple(p) for p in parse_where("where", text, naming)]


def test_conditions() -> None:
    assert parsed("topic = 'a''b' and partition>=3") == [
        ("topic", "=", "a'b"),
        ("partition", ">=", 3),
    ]
    assert parsed("tags IN ('A','B')") == [("tags", "in", ("A", "B"))]
    assert parsed("`timestamp` < '2024-05-31T12:00:00Z'") == [("timestamp", "<", NOON)]
    assert parsed(f"timestamp == {int(NOON.timestamp() * 1000)}") == [("timestamp", "=", NOON)]
    assert parsed("queueOffset < 5", ROCKETMQ_SPARK) == [("offset", "<", 5)]


@pytest.mark.parametrize(
    "text",
    [
        "", "topic", "topic =", "topic = 5", "offset = 'x'", "value = 'x'", "nothing = 1",
        "offset = 1 OR offset = 2", "offset = 1 AND", "tags IN ('A'", "tags IN 'A'",
        "timestamp > 'noon'", "offset ! 5", "topic = 'a", "offset = 1; DROP",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidConfig):
        parse_where("where", text)


def test_what_is_left_of_a_queue() -> None:
    ms = int(NOON.timestamp() * 1000)
    half = NOON + datetime.timedelta(microseconds=500)

    def reach(*found: tuple[str, str, Any]) -> Reach:
        return predicates.reach_of([Predicate(*each) for each in found])

    assert reach(("offset", ">", 4), ("offset", "<=", 9)) == Reach(5, 10)
    assert reach(("offset", "=", 7), ("tags", "=", "A")) == Reach(7, 8)
    assert reach(("timestamp", ">=", NOON)) == Reach(time_from_ms=ms)
    assert reach(("timestamp", ">", NOON)) == Reach(time_from_ms=ms + 1)
    assert reach(("timestamp", "<", NOON)) == Reach(time_until_ms=ms)
    assert reach(("timestamp", "<", half)) == Reach(time_until_ms=ms + 1)
    assert reach(("timestamp", "<=", half)) == Reach(time_until_ms=ms + 1)
    assert reach(("timestamp", ">", half)).time_from_ms == ms + 1
    assert reach(("bornTimestamp", "<", NOON)) == Reach(0, NO_LIMIT, 0, NO_LIMIT)
    queue = MessageQueue("t", "b", 3)
    allowed = predicates.allows_queue
    assert allowed([Predicate("partition", "in", (1, 3)), Predicate("topic", "=", "t")], queue)
    assert not allowed([Predicate("partition", "<", 3)], queue)


class _Filter:
    def __init__(self, name: str, attribute: tuple[str, ...], value: Any) -> None:
        self.attribute, self.value = attribute, value
        self.__class__ = type(name, (_Filter,), {})


def test_only_some_of_sparks_filters_are_taken_over() -> None:
    found = predicates.from_filters(
        [
            _Filter("EqualTo", ("topic",), "t"),
            _Filter("In", ("partition",), [1, 2]),
            _Filter("GreaterThan", ("timestamp",), NOON),
            _Filter("GreaterThan", ("timestamp",), NOON.replace(tzinfo=None)),
            _Filter("EqualTo", ("properties", "x"), "t"),
            _Filter("EqualTo", ("value",), b"t"),
            _Filter("StringContains", ("topic",), "t"),
            _Filter("EqualTo", ("partition",), None),
        ],
        "default",
    )
    assert found == (
        Predicate("topic", "=", "t"),
        Predicate("partition", "in", (1, 2)),
        Predicate("timestamp", ">", NOON),
    )


@pytest.fixture(scope="module")
def filled(broker: EmbeddedBroker) -> tuple[str, list[Any]]:
    topic = "conditions"
    broker.create_topic(topic, 2)
    with SyncProducer(broker.name_server) as producer:
        for number in range(200):
            message = OutgoingMessage(topic, b"%d" % number, "AB"[number % 2], f"k{number // 2}")
            producer.send(message, queue=MessageQueue(topic, "broker-a", number % 2))
    return topic, sorted(broker.consume(topic), key=lambda message: int(message.body))


def read(
    broker: EmbeddedBroker, topic: str, where: str, pushed: tuple[Predicate, ...] = (), **more: str
) -> tuple[list[int], int]:
    """The values, and how many offsets were read for them."""
    texts = {**broker.options, "subscribe": topic, **more, **({"where": where} if where else {})}
    options = SourceOptions.parse(texts).for_batch()
    connected = connections.connect(options.connection)
    tasks = connected.call(plan_batch(connected.client, options, pushed))
    rows = sum(part.rows for task in tasks for part in task.ranges)
    batches = [batch for task in tasks for batch in read_task(task, options, VALUE)]
    table = pa.Table.from_batches(batches, arrow_schema(VALUE))
    return sorted(int(value) for value in table.column(0).to_pylist()), rows


@pytest.mark.parametrize("way", ["on", "off"])
def test_only_rows_that_meet_the_conditions_are_read(
    broker: EmbeddedBroker, filled: tuple[str, list[Any]], way: str
) -> None:
    topic, messages = filled

    def found(where: str) -> tuple[list[int], int]:
        return read(broker, topic, where, shortCircuit=way)

    assert found("partition = 1 AND offset >= 90") == (list(range(181, 200, 2)), 10)
    assert found("topic = 'other'") == ([], 0)
    assert found("tags = 'A' AND offset < 3") == ([0, 2, 4], 6)
    assert found("reconsumeTimes > 0")[0] == []
    middle = messages[100].record.store_timestamp
    expected = [n for n, message in enumerate(messages) if message.record.store_timestamp >= middle]
    values, rows = found(f"timestamp >= {middle}")
    assert values == expected
    assert rows == len(expected)
    before, _ = found(f"timestamp < {middle}")
    assert sorted(before + values) == list(range(200))


def test_a_key_is_looked_up_in_the_index(
    broker: EmbeddedBroker, filled: tuple[str, list[Any]]
) -> None:
    topic, _ = filled
    assert read(broker, topic, "key = 'k30'") == ([60, 61], 2)
    assert read(broker, topic, "key IN ('k1', 'k99')") == ([2, 3, 198, 199], 4)
    assert read(broker, topic, "key = 'none'") == ([], 0)
    pushed = (Predicate("key", "=", "k7"),)
    assert read(broker, topic, "", pushed) == ([14, 15], 2)


def test_an_index_that_is_off_is_not_used() -> None:
    with EmbeddedBroker(topics={"t": 1}, properties={"messageIndexEnable": "false"}) as broker:
        broker.produce("t", [b"1"], keys="a")
        broker.produce("t", [b"2"], keys="b")
        assert read(broker, "t", "key = 'a'") == ([1], 2)
        connections.close_connections()
