"""Our own client's bulk paths: batches into our broker, pipelined and bulk pulls out of brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.broker_parts.produce import kind_name
from benchmarks.broker_parts.servers import APACHE, LOAD_FLAGS, kinds, one_cluster
from benchmarks.measuring.measure import run_loop
from benchmarks.measuring.results import ratio, row
from benchmarks.measuring.rounds import better, figure, order, ratio_of
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.bulk_producer import BulkProducer
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.pull.consumer import PullConsumer
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from tests.interop.java_client import JavaClient
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
        rates, batches = [], []
        async with Producer(client, "bench") as producer:
            await producer.send("PyBatches", b"creates the topic")
            for number in range(ROUNDS):
                for index in order(number, 2):
                    if index:
                        batches.append(await send_all(producer, "PyBatches", count // 4, None))
                        continue
                    started = time.perf_counter()
                    await bulk.send_bodies("PyBulk", bodies)
                    rates.append(count / (time.perf_counter() - started))
    table, settings = "our client into our broker, 100 B", "ASYNC_FLUSH"
    row(table, "message objects in batches", settings, "msg/s", figure(batches))
    row(table, "bulk producer", settings, "msg/s", figure(rates))
    ratio("our_batch_producer_k_msg_per_s", figure(rates).median / 1e3, ">=500")


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


async def measure_pulls(
    name_server: str, kind: str, java_rate: Callable[[MessageQueue, int], float], quick: bool
) -> None:
    """One pull at a time by our client and by Apache's, and our stream; all are connected."""
    # Single pulls of a tenth of a second would differ by a factor of five.
    few, many = (100_000, 500_000) if quick else (200_000, 1_000_000)
    config = ClientConfig((name_server,))
    queue = await filled_queue(config, many)
    taken: dict[str, list[float]] = {"one": [], "java": [], "stream": []}
    async with ClientInstance(config) as client:
        consumer = PullConsumer(client, "bench")
        # Round 0 only warms up and connects.
        for number in range(ROUNDS + 1):
            for index in order(number, len(taken)):
                name = list(taken)[index]
                if name == "one":
                    rate = await one_at_a_time(consumer, queue, few)
                elif name == "java":
                    rate = await asyncio.to_thread(java_rate, queue, few)
                else:
                    rate = await streamed(consumer, queue, many)
                if number:
                    taken[name].append(rate)
    found = {name: figure(rates) for name, rates in taken.items()}
    table = f"pulls from {kind_name(kind)}, 100 B"
    single = f"{PULL_COUNT} messages a pull, connected before"
    row(table, "our client, one pull at a time", single, "msg/s", found["one"])
    row(table, "Apache's Java client, one pull at a time", single, "msg/s", found["java"])
    row(table, "our client, stream", "several requests in flight", "msg/s", found["stream"])
    if kind == APACHE:
        peer = better(found, ["one", "java"])
        value = ratio_of(found["stream"], found[peer])
        ratio("pipelined_over_single_pulls_from_apache", value, ">=5", peer)
    else:
        ratio("bulk_pull_m_msg_per_s", found["stream"].median / 1e6, ">=2")


@contextmanager
def java_pulls(name_server: str) -> Iterator[Callable[[MessageQueue, int], float]]:
    """A function that makes Apache's Java client pull `count` messages of a queue; messages/s."""
    with JavaClient(APACHE, LOAD_FLAGS, quick_start=False) as java:
        java.call(
            "pull.start", consumer="single", ns=name_server, instance="single", group="single"
        )

        def rate(queue: MessageQueue, rows: int) -> float:
            figures = java.call(
                "pull.rate", consumer="single", topic=queue.topic, broker=queue.broker_name,
                queue=queue.queue_id, rows=rows, count=PULL_COUNT,
            )  # fmt: skip
            return float(figures["read"]) / float(figures["seconds"])

        yield rate
        java.call("pull.close", consumer="single")


def run_batches(root: Path, quick: bool) -> None:
    """Our producer into our broker."""
    if OURS in kinds():
        with one_cluster(root, OURS) as cluster:
            run_loop(measure_batches(cluster.name_server_address, quick))


def run_pulls(root: Path, quick: bool) -> None:
    """Our consumer out of either broker."""
    for kind in kinds():
        with one_cluster(root, kind) as cluster:
            name_server = cluster.name_server_address
            with java_pulls(name_server) as java_rate:
                run_loop(measure_pulls(name_server, kind, java_rate, quick))
