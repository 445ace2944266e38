"""Makes dead letters at a running broker."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core import ClientConfig, ClientInstance, OutgoingMessage, Producer, PullConsumer
from broker_core.client.push.send_back import SendBack

# A level that asks for the dead-letter queue at once, without retries.
_DEAD = -1


async def make_dead(config: ClientConfig, group: str, messages: Sequence[OutgoingMessage]) -> None:
    """Send messages, and give them back as a consumer of `group` that cannot handle them."""
    async with ClientInstance(config) as client, Producer(client) as producer:
        consumer = PullConsumer(client, group)
        back = SendBack(client, group, 1)
        for message in messages:
            sent = await producer.send(message)
            stream = consumer.stream(sent.queue, sent.queue_offset, sent.queue_offset + 1)
            async with stream:
                [received] = [found async for found in stream.messages()]
            assert await back.send(received, _DEAD)
