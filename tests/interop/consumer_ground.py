"""What scenarios with our consumers stand on: a cluster, a client, a producer, a listener."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from broker_core.client.admin.admin import Admin
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.consumer import PushConsumer
from broker_core.client.push.types import ConsumeContext, ConsumeStatus
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import TopicNotExist
from tests.interop.clusters import REQUEST_TIMEOUT_MS, Cluster, cluster

POLL_S = 0.05


def bodies(count: int, prefix: str = "m") -> list[bytes]:
    """Bodies that can be told apart."""
    return [f"{prefix}{number}".encode() for number in range(count)]


async def until(condition: Callable[[], object], what: str = "", limit_s: float = 60.0) -> None:
    """Look every few milliseconds until something is so."""
    loop = asyncio.get_running_loop()
    never: asyncio.Future[None] = loop.create_future()
    deadline = loop.time() + limit_s
    while not condition():
        assert loop.time() < deadline, f"never came to be: {what}"
        await asyncio.wait((never,), timeout=POLL_S)


def patient_config(name_server: str, **options: Any) -> ClientConfig:
    """A client that gives a busy machine the time that it takes.

    A producer that gives up after a few seconds sends again what may be stored already.
    """
    return ClientConfig((name_server,), **{"request_timeout_ms": REQUEST_TIMEOUT_MS, **options})


class Collected:
    """A listener that keeps what it gets, and does what `verdict` says."""

    def __init__(self, verdict: Callable[[ReceivedMessage, ConsumeContext], Any] | None = None):
        self.messages: list[ReceivedMessage] = []
        self._verdict = verdict
        self.running = 0
        self.running_most = 0

    async def __call__(
        self, messages: Sequence[ReceivedMessage], context: ConsumeContext
    ) -> ConsumeStatus | None:
        self.running += 1
        self.running_most = max(self.running_most, self.running)
        try:
            await asyncio.sleep(0)
            self.messages.extend(messages)
            if self._verdict is None:
                return None
            status: ConsumeStatus | None = self._verdict(messages[0], context)
            return status
        finally:
            self.running -= 1

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def until_bodies(self, wanted: Iterable[bytes], limit_s: float = 60.0) -> None:
        """Until each of these has come."""
        missing = set(wanted)
        await until(lambda: missing <= set(self.bodies()), f"{len(missing)} messages", limit_s)


class Ground:
    """One cluster and one client of ours."""

    missing = (TopicNotExist, ValueError)

    def __init__(
        self,
        kind: str,
        found: Cluster,
        client: ClientInstance,
        producer: Producer,
        directory: Path,
    ) -> None:
        self.kind = kind
        self.cluster = found
        self.directory = directory
        self.client = client
        self.producer = producer
        self.admin = Admin(client)
        self.puller = PullConsumer(client, "PULLERS")
        self._stack = contextlib.AsyncExitStack()

    async def topic(self, name: str, queue_count: int = 4) -> tuple[MessageQueue, ...]:
        await self.admin.create_topic(name, queue_count=queue_count)
        return await self.puller.queues(name)

    async def send(
        self, topic: str, bodies: Iterable[bytes], queue: MessageQueue | None = None, **more: Any
    ) -> None:
        sends = [
            self.producer.send(OutgoingMessage(topic, body, **more), queue=queue) for body in bodies
        ]
        await asyncio.gather(*sends)

    async def readable(self, queue: MessageQueue, until_offset: int) -> None:
        """Wait until a queue has so many messages for readers: dispatching takes a moment."""

        async def is_there() -> bool:
            return await self.puller.max_offset(queue) >= until_offset

        await self.cluster.until(is_there)

    def new_client(self, **config: Any) -> ClientInstance:
        return ClientInstance(patient_config(self.cluster.name_server, **config))

    async def push(
        self, group: str, topic: str, listener: Any, expression: str = "*", **settings: Any
    ) -> PushConsumer:
        """A member of `group` with a client of its own, stopped at the end of the scenario."""
        consumer = PushConsumer(
            patient_config(self.cluster.name_server, offset_persist_interval_ms=500),
            group,
            listener,
            **{"suspend_ms": 3_000, **settings},
        )
        consumer.subscribe(topic, expression)
        self._stack.push_async_callback(consumer.stop)
        await consumer.start()
        return consumer

    async def close(self) -> None:
        await self._stack.aclose()


@contextlib.asynccontextmanager
async def ground(kind: str, tmp_path: Path, **options: Any) -> AsyncIterator[Ground]:
    """A running cluster of `kind` with a client; everything in it ends with the block."""
    async with (
        cluster(kind, tmp_path, **options) as found,
        ClientInstance(patient_config(found.name_server)) as client,
        Producer(client, "PRODUCERS") as producer,
    ):
        made = Ground(kind, found, client, producer, tmp_path)
        try:
            yield made
        finally:
            await made.close()
