"""Columns to a real broker of ours: every message once, in order, and again after a restart."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.bulk_producer import BulkProducer, columns_of
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.errors import RmqError, SystemBusy
from broker_core.nameserver.name_server import NameServer
from tests.broker.running_broker import broker_config, until, until_registered

Run = Callable[..., Any]
BODIES = [b"%0300d" % number for number in range(30_000)]


async def started(tmp_path: Path, **properties: str) -> tuple[NameServer, Broker, ClientInstance]:
    server = NameServer()
    port = await server.start("127.0.0.1", 0)
    broker = Broker(broker_config(tmp_path, namesrvAddr=f"127.0.0.1:{port}", **properties))
    await broker.start()
    await until_registered(server)
    client = ClientInstance(ClientConfig((f"127.0.0.1:{port}",)))
    await client.start()
    return server, broker, client


def stored_bodies(broker: Broker, topic: str, queue_id: int) -> list[bytes]:
    store, found, offset = broker.context.store, [], 0
    while True:
        result = store.get(topic, queue_id, offset, 1 << 20, size_max=1 << 30)
        if not result.message_count:
            return found
        found += [message.body for message in result.messages()]
        offset = result.next_offset


def test_every_message_once_and_in_order(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        server, broker, client = await started(tmp_path, mappedFileSizeCommitLog=str(8 << 20))
        runs = await BulkProducer(client).send_bodies("T", BODIES)
        assert sum(run.count for run in runs) == len(BODIES)
        # Requests of megabytes, not the thousand messages that other brokers get at once.
        assert len(runs) == 5
        store = broker.context.store
        await until(lambda: store.dispatched_position == store.log_range[1])
        queues = [stored_bodies(broker, "T", queue_id) for queue_id in range(4)]
        assert sorted(body for queue in queues for body in queue) == BODIES
        assert sum(bool(queue) for queue in queues) == 4
        # One queue: all of them, in their order.
        target = runs[0].queue._replace(topic="One", queue_id=0)
        await BulkProducer(client, in_flight=1).send_bodies("One", BODIES[:9_000], queue=target)
        await until(lambda: store.dispatched_position == store.log_range[1])
        assert stored_bodies(broker, "One", 0) == BODIES[:9_000]
        await client.stop()
        await broker.stop()
        await server.stop()

    run_async(scenario())


def test_columns_that_follow_each_other_keep_their_order(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        server, broker, client = await started(tmp_path)
        producer = BulkProducer(client)
        [first] = await producer.send_bodies("T", [b"first"])
        window = producer.window()
        for start in range(0, len(BODIES), 12_000):
            some = BODIES[start : start + 12_000]
            offsets = array("q", (0, *accumulate(map(len, some))))
            columns = columns_of("T", b"".join(some), offsets)
            await producer.begin_columns(columns, window, queue=first.queue)
        # The last ones are still on their way.
        assert sum(run.count for run in window.runs) < len(BODIES)
        runs = await window.settle()
        assert sum(run.count for run in runs) == len(BODIES)
        store = broker.context.store
        await until(lambda: store.dispatched_position == store.log_range[1])
        assert stored_bodies(broker, "T", first.queue.queue_id) == [b"first", *BODIES]
        await client.stop()
        await broker.stop()
        await server.stop()

    run_async(scenario())


def test_a_window_tells_what_failed_and_can_be_given_up(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        server, broker, client = await started(tmp_path)
        producer = BulkProducer(client, attempts=1)
        [first] = await producer.send_bodies("T", [b"first"])
        window, columns = producer.window(), columns_of("T", b"body", array("q", (0, 4)))
        await producer.begin_columns(columns, window, queue=first.queue._replace(queue_id=99))
        with pytest.raises(RmqError, match="99"):
            await window.settle()
        await window.abandon()
        assert await window.settle() == []
        await client.stop()
        await broker.stop()
        await server.stop()

    run_async(scenario())


def test_refusals_are_raised(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        server, broker, client = await started(tmp_path, autoCreateTopicEnable="false")
        with pytest.raises(RmqError, match="Nowhere"):
            await BulkProducer(client).send_bodies("Nowhere", BODIES[:10])
        await client.stop()
        await broker.stop()
        await server.stop()

    run_async(scenario())


def test_a_busy_broker_is_asked_again(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        server, broker, client = await started(tmp_path)
        await BulkProducer(client).send_bodies("T", BODIES[:1])
        pressure = broker.context.store.writes.pressure
        # As after an append that took long.
        pressure.stalled(600)
        with pytest.raises(SystemBusy):
            await BulkProducer(client, attempts=1).send_bodies("T", BODIES[:10])
        producer = BulkProducer(client, timeout_ms=300_000)
        sending = asyncio.ensure_future(producer.send_bodies("T", BODIES[:10]))
        # More often than its three attempts.
        await until(lambda: producer.retry_count > 3)
        pressure.stalled(0)
        runs = await sending
        assert sum(run.count for run in runs) == 10
        await client.stop()
        await broker.stop()
        await server.stop()

    run_async(scenario())


def test_a_broker_that_restarts_gets_everything(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        server, broker, client = await started(tmp_path, flushDiskType="SYNC_FLUSH")
        producer = BulkProducer(client, attempts=50)
        await producer.send_bodies("T", BODIES[:10])
        config = broker.config
        sending = asyncio.ensure_future(producer.send_bodies("T", BODIES[10:]))
        await asyncio.sleep(0)
        await broker.stop()
        broker = Broker(config)
        await broker.start()
        runs = await sending
        assert sum(run.count for run in runs) == len(BODIES) - 10
        store = broker.context.store
        await until(lambda: store.dispatched_position == store.log_range[1])
        found = {body for queue_id in range(4) for body in stored_bodies(broker, "T", queue_id)}
        assert found == set(BODIES)
        await client.stop()
        await broker.stop()
        await server.stop()

    run_async(scenario())


def test_the_ids_of_a_large_batch_fit_into_its_answer(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        server, broker, client = await started(tmp_path)
        async with Producer(client) as producer:
            messages = [OutgoingMessage("T", b"%d" % number) for number in range(4_000)]
            results = await producer.send_batch(messages)
        assert len({result.offset_msg_id for result in results}) == 4_000
        await client.stop()
        await broker.stop()
        await server.stop()

    run_async(scenario())
