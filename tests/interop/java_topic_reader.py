"""Prints every message of a topic as Apache's Java client reads it, one body per line.

    python -m tests.interop.java_topic_reader NAME_SERVER TOPIC [VERSION]

The reader of `python -m pyspark_rmq.prove --reader` that has nothing in common with our client.
"""

from __future__ import annotations

import os
import sys

from broker_core import SyncPullConsumer
from tests.interop.java_client import CLIENT_VERSIONS, JavaClient


def read_topic(name_server: str, topic: str, version: str = CLIENT_VERSIONS[0]) -> list[bytes]:
    """Bodies, queue by queue; raises `PeerUnavailable` without the client's jars."""
    # Only the brokers' names: the driver is told them and finds everything else out itself.
    with SyncPullConsumer(name_server) as consumer:
        brokers = sorted({queue.broker_name for queue in consumer.queues(topic)})
    found: list[bytes] = []
    with JavaClient(version) as java:
        place = {"ns": name_server, "instance": f"reader-{os.getpid()}", "patient": True}
        java.call("producer.start", producer="p", group="reader-offsets", **place)
        java.call("pull.start", consumer="c", group="reader", **place)
        for broker in brokers:
            for queue in java.call("admin.queues", producer="p", topic=topic):
                where = {"topic": topic, "broker": broker, "queue": queue}
                offsets = java.call("admin.offsets", producer="p", **where)
                found += _read_queue(java, where, offsets["min"], offsets["max"])
    return found


def _read_queue(java: JavaClient, where: dict[str, object], offset: int, end: int) -> list[bytes]:
    found: list[bytes] = []
    while offset < end:
        result = java.call("pull.pull", consumer="c", offset=offset, **where)
        found += [message["body"] for message in result["messages"]]
        if result["next"] <= offset:
            raise AssertionError(f"{where} does not go on at {offset}: {result['status']}")
        offset = result["next"]
    return found


if __name__ == "__main__":
    for body in read_topic(*sys.argv[1:]):
        sys.stdout.write(body.decode() + "\n")
