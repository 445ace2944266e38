"""Fixtures for pytest, found through the entry point `pytest11`. Importing it loads nothing else.

rmq_broker  a running broker, one for the whole session
rmq_topic   a fresh topic of the test
rmq_topics  a function that makes more of them
rmq_spark   a Spark session, one for the whole session; `rmq_spark_settings` has its settings
rmq_stream  a function that makes a `StreamTest`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from broker_core import EmbeddedBroker, Topic
    from pyspark_rmq.testing.stream_test import StreamTest

_numbers = count()


@pytest.fixture(scope="session")
def rmq_session_broker() -> Iterator[EmbeddedBroker]:
    """The broker of `rmq_broker`; override it for other settings."""
    from broker_core import EmbeddedBroker

    with EmbeddedBroker(test_clock=True) as broker:
        yield broker


@pytest.fixture
def rmq_broker(rmq_session_broker: EmbeddedBroker) -> EmbeddedBroker:
    """A running broker; one that an earlier test has killed is started again.

    If an earlier test has moved its clock, it is started again, with the time of the machine.
    """
    if rmq_session_broker.is_clock_advanced:
        rmq_session_broker.stop()
    return rmq_session_broker.start()


@pytest.fixture
def rmq_topics(
    rmq_broker: EmbeddedBroker, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Topic]]:
    """`rmq_topics(queue_count=4)`: a new topic, which is deleted after the test."""
    from broker_core import SyncAdmin

    made: list[Topic] = []
    test = re.sub(r"[^A-Za-z0-9_-]", "_", request.node.name)[:80]

    def make(queue_count: int = 4) -> Topic:
        topic = rmq_broker.topic(f"{test}_{next(_numbers)}")
        rmq_broker.create_topic(topic.name, queue_count)
        made.append(topic)
        return topic

    yield make
    rmq_broker.start()
    with SyncAdmin(rmq_broker.name_server) as admin:
        for topic in made:
            admin.delete_topic(topic.name)


@pytest.fixture
def rmq_topic(rmq_topics: Callable[..., Topic]) -> Topic:
    """A topic of four queues that only this test uses."""
    return rmq_topics()


@pytest.fixture(scope="session")
def rmq_spark_settings() -> Mapping[str, str]:
    """Settings of `rmq_spark`; override it to add some."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@pytest.fixture(scope="session")
def rmq_spark(rmq_spark_settings: Mapping[str, str]) -> Iterator[Any]:
    """A local Spark session whose workers use this interpreter; an active one is used as it is."""
    from pyspark.sql import SparkSession

    from pyspark_rmq import session

    is_ours = SparkSession.getActiveSession() is None
    spark = session("rmq tests", master="local[2]", config=rmq_spark_settings)
    yield spark
    if is_ours:
        spark.stop()


@pytest.fixture
def rmq_stream(
    rmq_spark: Any,
    rmq_broker: EmbeddedBroker,
    rmq_topics: Callable[..., Topic],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., StreamTest]]:
    """`rmq_stream(transform, …)`: a test of one query; its arguments are those of `StreamTest`."""
    from pyspark_rmq.testing.stream_test import StreamTest

    made: list[StreamTest] = []

    def make(transform: Callable[[Any], Any], **settings: Any) -> StreamTest:
        topic = settings.pop("topic", None) or rmq_topics(settings.pop("queue_count", 4))
        checkpoint = str(tmp_path_factory.mktemp("checkpoint"))
        test = StreamTest(rmq_spark, rmq_broker, topic, transform, checkpoint, **settings)
        made.append(test)
        return test

    yield make
    for test in made:
        test.stop()
