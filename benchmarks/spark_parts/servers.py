"""What the source reads from while it is measured: our broker, Apache's, Kafka; equally filled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.peers.kafka import KafkaServer
from broker_core import BulkProducer, ClientConfig, ClientInstance, OutgoingMessage, SyncProducer
from broker_core.client.blocking.admin import SyncAdmin
from broker_core.client.produce.bulk_producer import columns_of
from broker_core.codec.records.column_batch import ColumnBatch
from tests.interop.server_processes import MEASURING_FLAGS, OURS, BrokerCluster

QUEUES: Final = 4
_FILL_ROWS: Final = 50_000
_numbers: Final = itertools.count(1)


class RocketServer:
    """Our broker or one of Apache's, with topics that are filled and producers that trickle."""

    def __init__(self, kind: str, home: Path) -> None:
        self.kind = kind
        flush = {"flushDiskType": "ASYNC_FLUSH"}
        self._cluster = BrokerCluster(kind, home, flush, java_flags=MEASURING_FLAGS)

    def __enter__(self) -> RocketServer:
        self._cluster.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._cluster.stop()

    @property
    def name_server(self) -> str:
        return self._cluster.name_server_address

    @property
    def options(self) -> dict[str, str]:
        """For `.format("rmq")`."""
        return {"rmq.namesrv.addr": self.name_server}

    def new_topic(self, queues: int = QUEUES) -> str:
        topic = f"bench-{next(_numbers)}"
        with SyncAdmin(self.name_server) as admin:
            admin.create_topic(topic, queue_count=queues)
        return topic

    def filled_topic(self, count: int, size: int, queues: int = QUEUES) -> str:
        """`count` messages of `size` bytes with the ids that producers give them."""
        topic = self.new_topic(queues)
        asyncio.run(self._fill(_columns(topic, min(count, _FILL_ROWS), size), count))
        return topic

    def topic_of(self, bodies: Any, count: int) -> str:
        """`count` messages, which repeat the bodies of a binary array."""
        topic = self.new_topic()
        _, offsets, data = bodies.buffers()
        ends = array("q", memoryview(offsets).cast("i")[: len(bodies) + 1])
        asyncio.run(self._fill(columns_of(topic, bytes(data), ends), count))
        return topic

    async def _fill(self, batch: ColumnBatch, count: int) -> None:
        client = ClientInstance(ClientConfig(self.name_server))  # type: ignore[arg-type]
        await client.start()
        try:
            producer = BulkProducer(client, timeout_ms=60_000)
            while count > 0:
                part = batch._replace(count=min(count, batch.count))
                await producer.send_columns(part)
                count -= part.count
        finally:
            await client.stop()

    @contextlib.contextmanager
    def trickle(self, topic: str, per_second: int, size: int = 100) -> Iterator[None]:
        """A producer that sends all the time, message by message, while the block runs."""
        ended = threading.Event()

        def send() -> None:
            body = b"x" * size
            with SyncProducer(self.name_server) as producer:
                while not ended.wait(1 / per_second):
                    producer.send(OutgoingMessage(topic, body))

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        try:
            yield
        finally:
            ended.set()
            sender.join()


class KafkaTopics:
    """The same face for Kafka."""

    def __init__(self, home: Path) -> None:
        self._kafka = KafkaServer(home)

    def __enter__(self) -> KafkaTopics:
        self._kafka.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._kafka.stop()

    @property
    def options(self) -> dict[str, str]:
        return self._kafka.options

    @property
    def process_id(self) -> int:
        return self._kafka.process_id

    def new_topic(self, queues: int = QUEUES, settings: Mapping[str, str] | None = None) -> str:
        topic = f"bench-{next(_numbers)}"
        self._kafka.create_topic(topic, queues, settings)
        return topic

    def filled_topic(self, count: int, size: int, queues: int = QUEUES) -> str:
        topic = self.new_topic(queues)
        self._kafka.fill(topic, count, size)
        return topic

    def topic_of(self, bodies: Any, count: int) -> str:
        """`count` messages, each with one of the bodies, which have no line feeds."""
        topic = self.new_topic()
        self._kafka.fill_with(topic, bodies.to_pylist(), count)
        return topic

    def trickle(
        self, topic: str, per_second: int, size: int = 100
    ) -> contextlib.AbstractContextManager[None]:
        return self._kafka.trickle(topic, per_second, size)


def ours(home: Path) -> RocketServer:
    return RocketServer(OURS, home)


def _columns(topic: str, rows: int, size: int) -> ColumnBatch:
    data = np.random.default_rng(7).bytes(rows * size)
    batch = columns_of(topic, data, array("q", range(0, (rows + 1) * size, size)))
    ids = [b"UNIQ_KEY\x01%032X\x02" % number for number in range(rows)]
    width = len(ids[0])
    ends = array("q", range(0, (rows + 1) * width, width))
    return batch._replace(properties=(b"".join(ids), ends, 8))
