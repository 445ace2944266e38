"""Sends many messages evenly over the queues of a topic, in batches; each answer is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.queue_choice import Turn, queue_for_key
from broker_core.codec.wire.bodies.message_queue import MessageQueue

# Messages that are in memory at once.
_PORTION: Final = 20_000
_BATCH_COUNT: Final = 500
_BATCH_SIZE: Final = 256 << 10
# Up to this many messages are sent one by one, which keeps their order across queues.
_IN_ORDER: Final = 1_000
# Bytes that are under way at once then: the timeout of a send includes the wait for those before.
_IN_FLIGHT_SIZE: Final = 4 << 20


async def send_evenly(producer: Producer, topic: str, messages: Iterable[OutgoingMessage]) -> int:
    """Send all of them and return their number; raises the first error.

    Messages without a sharding key go to the queues in turn; the order within a queue is kept.
    """
    count = 0
    turn = Turn()
    rest = iter(messages)
    while portion := list(islice(rest, _PORTION)):
        queues = await producer.publish_queues(topic)
        placed = [
            (queue_for_key(queues, m.sharding_key) if m.sharding_key else turn.choose(queues), m)
            for m in portion
        ]
        if len(placed) <= _IN_ORDER:
            for group in _groups(placed):
                await asyncio.gather(*(producer.send(m, queue=queue) for queue, m in group))
        else:
            by_queue: dict[MessageQueue, list[OutgoingMessage]] = {}
            for queue, message in placed:
                by_queue.setdefault(queue, []).append(message)
            await asyncio.gather(*(_send_queue(producer, *pair) for pair in by_queue.items()))
        count += len(portion)
    return count


def _groups(
    placed: list[tuple[MessageQueue, OutgoingMessage]],
) -> Iterator[list[tuple[MessageQueue, OutgoingMessage]]]:
    group: list[tuple[MessageQueue, OutgoingMessage]] = []
    size = 0
    for queue, message in placed:
        if group and size + len(message.body) > _IN_FLIGHT_SIZE:
            yield group
            group, size = [], 0
        group.append((queue, message))
        size += len(message.body)
    yield group


async def _send_queue(
    producer: Producer, queue: MessageQueue, messages: list[OutgoingMessage]
) -> None:
    for batch in _batches(messages):
        if len(batch) == 1:
            await producer.send(batch[0], queue=queue)
        else:
            await producer.send_batch(batch, queue)


def _batches(messages: list[OutgoingMessage]) -> Iterator[list[OutgoingMessage]]:
    """Runs of messages that fit into one request; a delayed or an empty message goes alone."""
    batch: list[OutgoingMessage] = []
    size = 0
    for message in messages:
        is_special = bool(message.delay_level) or message.has_time or not message.body
        if batch and (
            is_special or len(batch) >= _BATCH_COUNT or size + len(message.body) > _BATCH_SIZE
        ):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.body)
        if is_special:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
