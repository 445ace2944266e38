"""A Java consumer that polls all the time sees whole batches of the sink, or nothing of them."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.sink.publication import abort_batch, publish_batch
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.result import TaskIdentity, TaskResult
from pyspark_rmq.sink.task.sink_columns import find_columns
from pyspark_rmq.sink.task.writer import write_task
from tests.interop.java_client import CLIENT_VERSIONS, JavaClient
from tests.interop.maven_artifacts import PeerUnavailable

pytestmark = pytest.mark.interop

TOPIC = "Isolated"
TASKS = 2
ROWS = 300
BATCHES = 6


def write_all(options: SinkOptions, ended: threading.Event) -> None:
    """Batches that are published, each beside attempts that are given up or left behind."""
    columns = find_columns([("value", "string")], options)

    def write(batch: int, task: int, attempt: int, text: str) -> TaskResult:
        rows = pa.RecordBatch.from_pydict({"value": pa.array([text] * ROWS)})
        who = TaskIdentity("isolated", batch, "run", task, attempt, 0)
        return write_task([rows], options, columns, "exactly_once", who)

    try:
        for batch in range(BATCHES):
            given_up = write(batch, 0, 0, "never")
            results = [write(batch, task, 1, f"b{batch}") for task in range(TASKS)]
            write(batch, 1, 2, "never")
            abort_batch(options, [given_up])
            publish_batch(options, results)
    finally:
        ended.set()


def poll(java: JavaClient, name_server: str, ended: threading.Event) -> list[str]:
    """Pull until everything that was published has come; every end that is told is checked."""
    java.call("pull.start", consumer="c", group="ISOLATED", ns=name_server, instance="c", vip=False)
    place: dict[str, Any] = {"consumer": "c", "topic": TOPIC, "broker": "broker-a", "queue": 0}
    bodies: list[str] = []
    offset = 0
    while not ended.is_set() or offset < BATCHES * TASKS * ROWS:
        pulled = java.call("pull.pull", offset=offset, count=32, **place)
        assert pulled["max"] % (TASKS * ROWS) == 0, pulled["max"]
        bodies += [message["body"].decode() for message in pulled["messages"]]
        if ended.is_set() and pulled["next"] == offset and pulled["max"] == offset:
            break
        offset = pulled["next"]
    java.call("pull.close", consumer="c")
    return bodies


def test_a_java_consumer_sees_whole_batches_only() -> None:
    try:
        java = JavaClient(CLIENT_VERSIONS[-1])
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    with java, EmbeddedBroker(topics={TOPIC: 1}) as broker:
        options = SinkOptions.parse({**broker.options, "topic": TOPIC})
        ended = threading.Event()
        writer = threading.Thread(target=write_all, args=(options, ended))
        writer.start()
        try:
            bodies = poll(java, broker.name_server, ended)
        finally:
            writer.join(180)
            connections.close_connections()
    assert bodies == [f"b{batch}" for batch in range(BATCHES) for _ in range(TASKS * ROWS)]
