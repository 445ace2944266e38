"""Missing topics: created according to broker and options, or an error on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker_core import SyncAdmin, errors
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.data_source import RmqDataSource
from pyspark_rmq.sink.sink_options import SinkOptions


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedBroker]:
    """A broker that makes no topics."""
    with EmbeddedBroker(properties={"autoCreateTopicEnable": "false"}) as running:
        yield running
        connections.close_connections()


def start(broker: EmbeddedBroker, kind: str, **options: str) -> Any:
    """What Spark asks for on the driver, before any task."""
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField("value", StringType())])
    source = RmqDataSource({**broker.options, **options})
    return source.writer(schema, False) if kind == "batch" else source.streamWriter(schema, False)


def queues(broker: EmbeddedBroker, topic: str) -> int:
    with SyncAdmin(broker.name_server) as admin:
        return sum(queue.write_queue_count for queue in admin.route(topic).queues)


@pytest.mark.parametrize("kind", ["batch", "stream"])
@pytest.mark.parametrize("guarantee", ["auto", "exactly_once", "at_least_once"])
def test_a_broker_that_makes_topics_makes_it(
    broker: EmbeddedBroker, kind: str, guarantee: str
) -> None:
    topic = f"new-{kind}-{guarantee}"
    start(broker, kind, topic=topic, deliveryGuarantee=guarantee, **{"topic.queues": "3"})
    assert queues(broker, topic) == 3
    # One that exists is left as it is.
    start(broker, kind, topic=topic, **{"topic.queues": "5"})
    assert queues(broker, topic) == 3


@pytest.mark.parametrize("kind", ["batch", "stream"])
@pytest.mark.parametrize("guarantee", ["auto", "exactly_once", "at_least_once"])
def test_a_broker_that_makes_none(strict: EmbeddedBroker, kind: str, guarantee: str) -> None:
    options = {"topic": "absent", "deliveryGuarantee": guarantee}
    with pytest.raises(errors.InvalidArgument, match=r"'absent' does not exist.*autoCreateTopic"):
        start(strict, kind, **options)
    with pytest.raises(errors.InvalidArgument, match=r"'absent' does not exist.*ifMissing"):
        start(strict, kind, createTopic="never", **options)
    start(strict, kind, **{**options, "topic": f"made-{kind}-{guarantee}"}, createTopic="ifMissing")
    assert queues(strict, f"made-{kind}-{guarantee}") == 8


def test_create_topic_never_creates_no_topic(broker: EmbeddedBroker) -> None:
    with pytest.raises(errors.InvalidArgument, match="'absent' does not exist"):
        start(broker, "stream", topic="absent", createTopic="never")


def test_the_topic_of_rows_that_are_too_large(strict: EmbeddedBroker) -> None:
    strict.create_topic("here", 1)
    options = {"topic": "here", "oversizePolicy": "dlq", "oversizeTopic": "not-here"}
    with pytest.raises(errors.InvalidArgument, match="'not-here' does not exist"):
        start(strict, "stream", **options)
    start(strict, "stream", **options, createTopic="ifMissing")


def test_topics_by_column_need_none(strict: EmbeddedBroker) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField("value", StringType()), StructField("topic", StringType())]
    RmqDataSource(strict.options).writer(StructType(fields), False)


def test_the_option() -> None:
    given = {"rmq.namesrv.addr": "127.0.0.1:1", "topic": "T"}
    options = SinkOptions.parse(given)
    assert options.asks_broker_for_topics and not options.creates_topics
    for text in ("auto", "AUTO"):
        assert SinkOptions.parse({**given, "createTopic": text}) == options
    never = SinkOptions.parse({**given, "createTopic": "never"})
    assert not never.asks_broker_for_topics and not never.creates_topics
    assert SinkOptions.parse({**given, "createTopic": "ifMissing"}).creates_topics
    with pytest.raises(errors.InvalidConfig, match="createTopic"):
        SinkOptions.parse({**given, "createTopic": "maybe"})
