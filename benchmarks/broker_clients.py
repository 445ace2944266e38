"""Our own client's bulk paths: batches into our broker, pipelined and bulk pulls out of brokers."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from benchmarks.broker_servers import APACHE, kinds, one_cluster
from benchmarks.measure import info, ratio, run_loop
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.bulk_producer import BulkProducer
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.pull.consumer import PullConsumer
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from tests.interop.server_processes import BROKER_NAME, OURS

BODY = bytes(100)
BATCH_COUNT = 1_000
IN_FLIGHT = 8
PULL_COUNT = 32
ROUNDS = 5


async def send_all(producer: Producer, topic: str, count: int, queue: MessageQueue | None) -> float:
    """Messages per second of full batches with several under way."""
    batch = [OutgoingMessage(topic, BODY) for _ in range(BATCH_COUNT)]
    left = count // BATCH_COUNT

    async def one_sender() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await producer.send_batch(batch, queue=queue)

    started = time.perf_counter()
    await asyncio.gather(*(one_sender() for _ in range(IN_FLIGHT)))
    return count / (time.perf_counter() - started)


async def measure_batches(name_server: str, quick: bool) -> None:
    count = 400_000 if quick else 2_000_000
    bodies = [BODY] * count
    async with ClientInstance(ClientConfig((name_server,))) as client:
        bulk = BulkProducer(client, "bench")
        await bulk.send_bodies("PyBulk", bodies[:1_000])
        rates = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            await bulk.send_bodies("PyBulk", bodies)
            rates.append(count / (time.perf_counter() - started))
        async with Producer(client, "bench") as producer:
            await producer.send("PyBatches", b"creates the topic")
            batches = [await send_all(producer, "PyBatches", count // 4, None) for _ in range(3)]
    info(
        f"our producer, message objects in batches: {statistics.median(batches) / 1e3:.0f} k msg/s"
    )
    rate = statistics.median(rates)
    info(f"our bulk producer into our broker: {rate / 1e3:.0f} k msg/s of 100 B")
    ratio("our_batch_producer_k_msg_per_s", rate / 1e3, ">=500")


async def filled_queue(config: ClientConfig, count: int) -> MessageQueue:
    """One queue with `count` messages."""
    async with Producer(config, "bench") as producer:
        first = await producer.send("PyPulls", b"creates the topic")
        queue = MessageQueue("PyPulls", BROKER_NAME, first.queue.queue_id)
        await BulkProducer(producer.client).send_bodies("PyPulls", [BODY] * count, queue=queue)
    return queue


async def one_at_a_time(consumer: PullConsumer, queue: MessageQueue, until: int) -> float:
    """Messages per second when each pull waits for the last."""
    offset = 0
    started = time.perf_counter()
    while offset < until:
        result = await consumer.pull(queue, offset, max_count=PULL_COUNT)
        offset = result.next_offset
    return until / (time.perf_counter() - started)


async def streamed(consumer: PullConsumer, queue: MessageQueue, until: int) -> float:
    """Messages per second of the stream, as runs of undecoded records."""
    count = 0
    started = time.perf_counter()
    async with consumer.stream(queue, 0, until) as runs:
        async for run in runs:
            count += run.count
    spent = time.perf_counter() - started
    if count < until:
        raise RuntimeError(f"{count} of {until} messages came")
    return count / spent


async def measure_pulls(name_server: str, kind: str, quick: bool) -> None:
    counts = {APACHE: (20_000, 200_000), OURS: (20_000, 1_000_000)}[kind]
    few, many = (counts[0], counts[1] // 2) if quick else counts
    config = ClientConfig((name_server,))
    queue = await filled_queue(config, many)
    async with ClientInstance(config) as client:
        consumer = PullConsumer(client, "bench")
        single: list[float] = []
        stream: list[float] = []
        for _ in range(ROUNDS):
            single.append(await one_at_a_time(consumer, queue, few))
            stream.append(await streamed(consumer, queue, many))
    alone, together = statistics.median(single), statistics.median(stream)
    info(f"our pulls from {kind}: one at a time {alone:.0f}, streamed {together:.0f} msg/s")
    if kind == APACHE:
        ratio("pipelined_over_single_pulls_from_apache", together / alone, ">=5")
    else:
        ratio("bulk_pull_m_msg_per_s", together / 1e6, ">=2")


def run_batches(root: Path, quick: bool) -> None:
    """Our producer into our broker."""
    if OURS in kinds():
        with one_cluster(root, OURS) as cluster:
            run_loop(measure_batches(cluster.name_server_address, quick))


def run_pulls(root: Path, quick: bool) -> None:
    """Our consumer out of either broker."""
    for kind in kinds():
        with one_cluster(root, kind) as cluster:
            run_loop(measure_pulls(cluster.name_server_address, kind, quick))
