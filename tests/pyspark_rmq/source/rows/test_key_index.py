"""`key = …` never misses a row because of an incomplete index."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer
from broker_core.storage.derived.dispatch_checkpoint import decode_checkpoint, encode_checkpoint
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.batch_plan import plan_batch
from pyspark_rmq.source.rows.message_batches import arrow_schema
from pyspark_rmq.source.rows.range_reader import read_task
from tests.interop.clusters import APACHE_KINDS, cluster, run_or_skip

COLUMNS = (ChosenColumn("offset", "offset"),)


def offsets_with(options: dict[str, str], topic: str, key: str) -> tuple[list[int], int]:
    """The offsets of the rows with a key, and how many offsets were read for them."""
    texts = {**options, "subscribe": topic, "where": f"key = '{key}'"}
    parsed = SourceOptions.parse(texts).for_batch()
    connected = connections.connect(parsed.connection)
    tasks = connected.call(plan_batch(connected.client, parsed))
    batches = [batch for task in tasks for batch in read_task(task, parsed, COLUMNS)]
    found = pa.Table.from_batches(batches, arrow_schema(COLUMNS)).column(0).to_pylist()
    return sorted(found), sum(part.rows for task in tasks for part in task.ranges)


def send(name_server: str, topic: str, *messages: tuple[str, bytes]) -> None:
    queue = MessageQueue(topic, "broker-a", 0)
    with SyncProducer(name_server) as producer:
        for key, body in messages:
            producer.send(OutgoingMessage(topic, body, keys=key), queue=queue)


def test_an_answer_that_ends_for_its_size() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        large = os.urandom(3 << 20)
        send(broker.name_server, "t", *(("a", large) for _ in range(4)), ("b", b"x"), ("b", b"y"))
        # Not all of them fit into an answer: everything is read.
        assert offsets_with(broker.options, "t", "a") == ([0, 1, 2, 3], 6)
        assert offsets_with(broker.options, "t", "b") == ([4, 5], 2)
        connections.close_connections()


def test_an_answer_that_ends_for_the_brokers_limit() -> None:
    with EmbeddedBroker(topics={"t": 1}, properties={"maxMsgsNumBatch": "3"}) as broker:
        send(broker.name_server, "t", *(("a", b"x") for _ in range(5)), ("b", b"y"))
        assert offsets_with(broker.options, "t", "a") == ([0, 1, 2, 3, 4], 6)
        assert offsets_with(broker.options, "t", "b") == ([5], 1)
        connections.close_connections()


def test_an_index_that_has_the_newest_only(tmp_path: Path) -> None:
    """As at an Apache broker whose index was switched on late: earlier messages are not in it."""
    with EmbeddedBroker(store=tmp_path, topics={"t": 1}) as broker:
        send(broker.name_server, "t", ("a", b"x"), ("b", b"y"))
        broker.stop()
        # The indexed messages are gone, which the reader cannot know.
        for index_file in (tmp_path / "index").iterdir():
            index_file.unlink()
        (tmp_path / "dispatch_checkpoint").write_bytes(_without_index(tmp_path))
        broker.start()
        send(broker.name_server, "t", ("c", b"z"))
        assert offsets_with(broker.options, "t", "c") == ([2], 3)
        assert offsets_with(broker.options, "t", "a") == ([0], 3)
        connections.close_connections()


def _without_index(store: Path) -> bytes:
    found = decode_checkpoint((store / "dispatch_checkpoint").read_bytes())
    assert found is not None
    return encode_checkpoint(found._replace(index_files=()))


# `Aa` and `BB` have the same hash, and so have `Aa#key` and `BB#key`.
COLLIDING = ("Aa", "BB")


@pytest.mark.interop
@pytest.mark.parametrize("kind", APACHE_KINDS)
def test_an_answer_full_of_another_topic(
    run_async: Callable[..., Any], kind: str, tmp_path: Path
) -> None:
    def scenario_of(name_server: str) -> None:
        with SyncAdmin(name_server) as admin:
            for topic in COLLIDING:
                admin.create_topic(topic, queue_count=1)
        send(name_server, "Aa", ("order", b"x"), ("other", b"y"))
        send(name_server, "BB", *(("order", b"z") for _ in range(40)))
        options = {"rmq.namesrv.addr": name_server}
        assert offsets_with(options, "Aa", "other") == ([1], 1)
        assert offsets_with(options, "Aa", "order") == ([0], 2)

    async def scenario() -> None:
        async with cluster(kind, tmp_path) as found:
            await asyncio.to_thread(scenario_of, found.name_server)
            await asyncio.to_thread(connections.close_connections)

    run_or_skip(run_async, scenario())


def test_topics_whose_keys_collide_at_our_broker(broker: EmbeddedBroker) -> None:
    for topic in COLLIDING:
        broker.create_topic(topic, 1)
    send(broker.name_server, "Aa", ("order", b"x"), ("other", b"y"))
    send(broker.name_server, "BB", *(("order", b"z") for _ in range(40)))
    # Our broker looks at the records themselves, so its answer is short and complete.
    assert offsets_with(broker.options, "Aa", "order") == ([0], 1)
