"""Offsets that are missing in the middle of a queue: no loss where compaction or a filter made the
hole, loss everywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer, SyncPullConsumer
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.topic_config import TopicConfig, topic_config_object
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from broker_core.runtime.clock import SystemClock
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.data_loss import DataLost
from pyspark_rmq.source.offsets.offset_planning import QueueRange
from pyspark_rmq.source.offsets.stream_position import StoreIdentity
from pyspark_rmq.source.rows.message_batches import arrow_schema
from pyspark_rmq.source.rows.range_reader import Task, read_task
from tests.client.queue_broker import TOPIC, ScriptedBroker, scripted_cluster, stored
from tests.interop.clusters import cluster, run_or_skip

OFFSET = (ChosenColumn("offset", "offset"),)
KEYS = 10


def offsets(name_server: str, topic: str, start: int, until: int, **more: str) -> list[int]:
    texts = {"rmq.namesrv.addr": name_server, "subscribe": topic, **more}
    task = Task((QueueRange(topic, "broker-a", 0, start, until),), {})
    batches = read_task(task, SourceOptions.parse(texts).for_batch(), OFFSET)
    return pa.Table.from_batches(batches, arrow_schema(OFFSET)).column(0).to_pylist()


def with_scripted(run_async: Any, broker: ScriptedBroker, check: Callable[[str], None]) -> None:
    async def scenario() -> None:
        async with scripted_cluster(broker) as found:
            [name_server] = found.client.config.name_servers
            await asyncio.to_thread(check, name_server)
            await asyncio.to_thread(connections.close_connections)

    run_async(scenario())


def holed(policy: str) -> ScriptedBroker:
    """Offsets 0 to 99 without 20 to 59, in a topic with that policy."""
    broker = ScriptedBroker([stored(offset) for offset in range(100)])

    def pull(command: RemotingCommand) -> RemotingCommand | None:
        offset = int(command.ext["queueOffset"])
        if offset >= 60:
            return None
        kept = [o for o in (*range(20), *range(60, 100)) if o >= offset][:32]
        return broker.answer(command, 0, kept[-1] + 1, b"".join(map(stored, kept)))

    def settings(command: RemotingCommand) -> RemotingCommand:
        topic = TopicConfig(TOPIC, 1, 1, attributes={"cleanup.policy": policy})
        return command.reply(
            body=emit_json({"topicConfigTable": {TOPIC: topic_config_object(topic)}})
        )

    broker.before_pull = pull
    broker.handlers[RequestCode.GET_ALL_TOPIC_CONFIG] = settings
    return broker


KEPT = [*range(20), *range(60, 100)]


def test_a_hole_that_compaction_made_is_no_loss(run_async: Callable[..., Any]) -> None:
    def check(name_server: str) -> None:
        assert offsets(name_server, TOPIC, 0, 100) == KEPT
        assert offsets(name_server, TOPIC, 30, 70) == list(range(60, 70))
        assert offsets(name_server, TOPIC, 25, 50) == []
        impatient = {"rmqConsumer.pollTimeoutMs": "3000"}
        with pytest.raises(DataLost, match="offset 100 was deleted or cut off"):
            offsets(name_server, TOPIC, 0, 120, **impatient)

    with_scripted(run_async, holed("COMPACTION"), check)


def test_expired_messages_are_reported_when_loss_is_allowed(
    run_async: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    broker = ScriptedBroker([stored(offset) for offset in range(50, 100)], 50)

    def check(name_server: str) -> None:
        found = offsets(name_server, TOPIC, 10, 100, failOnDataLoss="false")
        assert found == list(range(50, 100))

    with caplog.at_level("WARNING"):
        with_scripted(run_async, broker, check)
    assert "offsets 10 to 50 of queue 0 of T on broker-a were deleted before" in caplog.text


def test_a_log_that_is_replaced_during_a_read_is_noticed(run_async: Callable[..., Any]) -> None:
    """The rows came from two logs, or may have: the task must not count."""

    def capabilities(command: RemotingCommand) -> RemotingCommand:
        name = "b" if broker.pulls() else "a"
        return command.reply(ext={"topicEnds": "1", "storeId": name * 32, "epoch": "1"})

    broker = ScriptedBroker([stored(offset) for offset in range(100)])
    broker.handlers[RequestCode.CAPABILITIES] = capabilities

    def check(name_server: str) -> None:
        texts = {"rmq.namesrv.addr": name_server, "subscribe": TOPIC, "shortCircuit": "off"}
        task = Task(
            (QueueRange(TOPIC, "broker-a", 0, 0, 100),),
            {"broker-a": StoreIdentity("a" * 32, "1")},
        )
        with pytest.raises(DataLost, match="another log"):
            list(read_task(task, SourceOptions.parse(texts).for_batch(), OFFSET))
        assert broker.pulls()

    with_scripted(run_async, broker, check)


def test_a_hole_elsewhere_is_loss(run_async: Callable[..., Any]) -> None:
    def check(name_server: str) -> None:
        with pytest.raises(DataLost, match=r"offset 20 was deleted or cut off.*failOnDataLoss"):
            offsets(name_server, TOPIC, 0, 100)
        assert offsets(name_server, TOPIC, 0, 100, failOnDataLoss="false") == KEPT

    with_scripted(run_async, holed("DELETE"), check)


def test_what_is_below_the_minimum_is_loss(run_async: Callable[..., Any]) -> None:
    broker = ScriptedBroker([stored(offset) for offset in range(50, 100)], first_offset=50)

    def check(name_server: str) -> None:
        with pytest.raises(DataLost, match="offset 10 was deleted or cut off"):
            offsets(name_server, TOPIC, 10, 100)
        lax = offsets(name_server, TOPIC, 10, 100, failOnDataLoss="false")
        assert lax == list(range(50, 100))

    with_scripted(run_async, broker, check)


def test_holes_of_a_filter_are_no_loss(broker: EmbeddedBroker, new_topic: Any) -> None:
    topic = new_topic(1)
    queue = MessageQueue(topic, "broker-a", 0)
    with SyncProducer(broker.name_server) as producer:
        for number in range(100):
            tags = "A" if number in KEPT else "B"
            producer.send(OutgoingMessage(topic, b"x", tags), queue=queue)
    for way in ("on", "off"):
        found = offsets(broker.name_server, topic, 0, 100, tags="A", shortCircuit=way)
        assert found == KEPT


@pytest.mark.interop
def test_a_topic_that_apache_compacts(run_async: Callable[..., Any], tmp_path: Path) -> None:
    count = 3_000
    often = {
        "compactionMappedFileSize": str(64 << 10),
        "compactionCqMappedFileSize": str(46 * 200),
        "compactionScheduleInternal": "500",
    }

    def check(name_server: str) -> None:
        queue = MessageQueue("compacted", "broker-a", 0)
        with SyncAdmin(name_server) as admin:
            admin.create_topic(
                "compacted", queue_count=1, attributes={"cleanup.policy": "COMPACTION"}
            )
        with SyncProducer(name_server) as producer:
            for number in range(count):
                message = OutgoingMessage("compacted", bytes(100), keys=f"k{number % KEYS}")
                producer.send(message, queue=queue)
        wait_for_holes(name_server, queue, count)
        # The newest of each key are always there, and nothing fails on the way.
        found = offsets(name_server, "compacted", 0, count)
        assert len(found) < count
        assert found == sorted(set(found))
        assert set(range(count - KEYS, count)) <= set(found)

    async def scenario() -> None:
        async with cluster("apache-5.5.0", tmp_path, properties=often) as found:
            await asyncio.to_thread(check, found.name_server)
            await asyncio.to_thread(connections.close_connections)

    run_or_skip(run_async, scenario())


def wait_for_holes(name_server: str, queue: MessageQueue, count: int) -> None:
    clock = SystemClock()
    until = clock.monotonic() + 120
    with SyncPullConsumer(name_server) as consumer:
        while clock.monotonic() < until:
            first = consumer.pull(queue, 0).messages
            if first and first[0].queue_offset > 0:
                return
            # Held by the broker at the end of the queue: time passes without a pause of ours.
            consumer.pull(queue, count, suspend_ms=500)
    raise AssertionError("the broker has compacted nothing")
