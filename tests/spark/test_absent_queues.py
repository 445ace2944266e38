"""Brokers that are away and queues that are gone, seen from Spark: no query ends too early."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from broker_core import EmbeddedCluster, MessageQueue, OutgoingMessage, SyncProducer
from pyspark_rmq import EmbeddedBroker
from tests.pyspark_rmq.source.offsets.test_gone_queues import delete, shrink
from tests.spark.stream_runs import LATE, QUERY_LIMIT_S, StreamRuns

pytest.importorskip("pyspark")


def fill(cluster: EmbeddedCluster, topic: str) -> None:
    """Five messages in each of two queues of two brokers."""
    with SyncProducer(cluster.name_server) as producer:
        for broker in ("broker-a", "broker-b"):
            for number in range(10):
                queue = MessageQueue(topic, broker, number % 2)
                producer.send(OutgoingMessage(topic, b"%d" % number), queue=queue)


def test_available_now_does_not_end_well_over_queues_that_are_gone(
    spark: Any, tmp_path: Path
) -> None:
    changes = {"shrunk": (shrink, 5), "deleted": (delete, 10)}
    topics = dict.fromkeys(changes, 2)
    with EmbeddedCluster(masters=2, topics=topics) as cluster:
        for topic, (change, unread) in changes.items():
            given = {**cluster.options, "subscribe": topic, "startingOffsets": "earliest"}
            runs = StreamRuns(spark, tmp_path / topic, given)
            fill(cluster, topic)
            runs.run()
            assert len(runs.rows) == 20
            fill(cluster, topic)
            change(cluster, topic)
            with pytest.raises(Exception, match=rf"{unread} messages were not read.*{topic}"):
                runs.run()
            assert len(runs.rows) == 20
            runs.options["failOnDataLoss"] = "false"
            runs.run()
            assert len(runs.rows) == 40 - unread


def test_process_all_available_waits_for_a_broker_that_restarts(spark: Any, tmp_path: Path) -> None:
    with (
        EmbeddedBroker(store=tmp_path / "store", topics={"t": 1}) as broker,
        ThreadPoolExecutor(1) as beside,
    ):
        given = {**broker.options, "subscribe": "t", "startingOffsets": "earliest"}
        runs = StreamRuns(spark, tmp_path / "c", given)
        broker.produce("t", [f"m{number}" for number in range(5)])
        runs.run()
        broker.produce("t", [f"m{number}" for number in range(5, 12)])
        broker.kill()
        query = runs.start()
        try:
            done = beside.submit(query.processAllAvailable)
            broker.start()
            done.result(timeout=QUERY_LIMIT_S)
            assert len(runs.rows) == 12
            # Again while the query runs.
            broker.kill()
            done = beside.submit(query.processAllAvailable)
            broker.start()
            done.result(timeout=QUERY_LIMIT_S)
            assert len(runs.rows) == 12
        finally:
            query.stop()
        # One that stays away fails the query, and is named.
        runs.options["rmqConsumer.pollTimeoutMs"] = "2000"
        broker.kill()
        text = r"broker-a did not answer within .* s \(rmqConsumer.pollTimeoutMs=2000\)"
        for _ in range(10):
            query = runs.start()
            try:
                with pytest.raises(Exception, match=rf"{text}|{LATE}") as failure:
                    query.processAllAvailable()
            finally:
                query.stop()
            if LATE not in str(failure.value):
                break
        broker.start()


def test_a_filter_and_positions_fail_at_once(spark: Any) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        broker.produce("t", ["a", "b"])
        reader = spark.read.format("rmq").options(**broker.options)
        wrong = {
            "filterSql": ("a > 1", "enablePropertyFilter=true"),
            "startingOffsets": ('{"t":{"broker-z":{"0":1}}}', "broker 'broker-z'"),
            "endingOffsets": ('{"t":{"0":3}}', "offset 3 is past the end"),
        }
        for option, (value, text) in wrong.items():
            with pytest.raises(Exception, match=text) as failure:
                reader.option(option, value).load("t").collect()
            assert option in str(failure.value)
            reader = spark.read.format("rmq").options(**broker.options)
