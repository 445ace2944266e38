"""A missing dead-letter topic is an error of the driver, before any task runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from broker_core import errors
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.data_source import RmqDataSource
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.dead_letter_check import DeadLetterCheck

Topics = Callable[..., str]
MISSING = (
    r"^option deadLetterTopic=absent: the topic does not exist at 127\.0\.0\.1:\d+.*"
    r" create it, as with rmq admin topic create -t absent"
)


def reader(broker: EmbeddedBroker, kind: str, topic: str, dead: str, **more: str) -> Any:
    """What Spark plans with on the driver."""
    from pyspark.sql.types import StringType, StructField, StructType

    payload = StructType([StructField("id", StringType())])
    schema = StructType([StructField("value", payload)])
    given = {"subscribe": topic, "valueFormat": "json", "startingOffsets": "earliest", **more}
    given |= {"badRecords": "deadLetter", "deadLetterTopic": dead}
    source = RmqDataSource({**broker.options, **given})
    return source.reader(schema) if kind == "batch" else source.streamReader(schema)


def test_a_batch_read(broker: EmbeddedBroker, new_topic: Topics) -> None:
    topic, dead = new_topic(1), new_topic(1)
    with pytest.raises(errors.InvalidArgument, match=MISSING):
        reader(broker, "batch", topic, "absent").partitions()
    broker.produce(topic, ["{"])
    with pytest.raises(errors.InvalidArgument, match=MISSING):
        reader(broker, "batch", topic, "absent").partitions()
    assert len(reader(broker, "batch", topic, dead).partitions()) == 1


def test_a_stream(broker: EmbeddedBroker, new_topic: Topics) -> None:
    topic, dead = new_topic(1), new_topic(1)
    with pytest.raises(errors.InvalidArgument, match=MISSING):
        reader(broker, "stream", topic, "absent").initialOffset()
    found = reader(broker, "stream", topic, dead)
    start = found.initialOffset()
    broker.produce(topic, ["{"])
    end = found.latestOffset(start)
    assert len(found.partitions(start, end)) == 1


def test_a_running_stream_whose_topic_is_deleted(broker: EmbeddedBroker, new_topic: Topics) -> None:
    """A topic that was deleted meanwhile is noticed before the next batch that has messages."""
    topic, dead = new_topic(1), new_topic(1)
    start = reader(broker, "stream", topic, dead).initialOffset()
    stored = json.loads(json.dumps(start))
    again = reader(broker, "stream", topic, "absent", latestOffsetWaitMs="0")
    assert again.latestOffset(stored) == stored
    broker.produce(topic, ["{"])
    with pytest.raises(errors.InvalidArgument, match=MISSING):
        again.latestOffset(stored)


def test_name_servers_that_do_not_answer_are_left_to_the_tasks(broker: EmbeddedBroker) -> None:
    given = {"subscribe": "t", "valueFormat": "json", "badRecords": "deadLetter"}
    options = SourceOptions.parse({**broker.options, **given, "deadLetterTopic": "absent"})
    away = {"rmq.namesrv.addr": "127.0.0.1:1"}
    connected = connections.connect(SourceOptions.parse({**away, "subscribe": "t"}).connection)
    connected.call(DeadLetterCheck(connected.client, options).check())
