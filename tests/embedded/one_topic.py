"""Sends to and reads from a topic, the shortest way: for tests of something else."""

from __future__ import annotations

import asyncio

from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.producer import Producer
from broker_core.client.pull.consumer import PullConsumer


def _config(name_server: str) -> ClientConfig:
    # A machine that pauses must not make a send fail, or be sent again.
    return ClientConfig((name_server,), request_timeout_ms=60_000)


def send(name_server: str, topic: str, *bodies: bytes) -> None:
    """Acknowledged when this returns."""

    async def sending() -> None:
        async with Producer(_config(name_server)) as producer:
            await asyncio.gather(*(producer.send(topic, body) for body in bodies))

    asyncio.run(sending())


def bodies(name_server: str, topic: str) -> list[bytes]:
    """Everything that is there, sorted."""

    async def reading() -> list[bytes]:
        found = []
        async with ClientInstance(_config(name_server)) as client:
            consumer = PullConsumer(client, "reading")
            for queue in await consumer.queues(topic):
                until = await consumer.max_offset(queue)
                start = await consumer.min_offset(queue)
                async with consumer.stream(queue, start, until) as stream:
                    found += [message.body async for message in stream.messages()]
        return sorted(found)

    return asyncio.run(reading())


def queue_count(name_server: str, topic: str) -> int:
    """How many queues the name server has."""

    async def asking() -> int:
        async with ClientInstance(_config(name_server)) as client:
            return len(await client.routes.subscribe_queues(topic))

    return asyncio.run(asking())
