"""Where a queue is read from when it comes to this client."""

from __future__ import annotations

from broker_core.client.client_instance import ClientInstance
from broker_core.client.consume_types import PushSettings
from broker_core.client.offset_keeper import OffsetKeeper
from broker_core.client.queue_offsets import QueueOffsets
from broker_core.codec.heartbeat_data import FROM_FIRST_OFFSET, FROM_LAST_OFFSET
from broker_core.codec.message_queue import MessageQueue
from broker_core.codec.topic_name import RETRY_TOPIC_PREFIX


async def start_offset(
    client: ClientInstance, keeper: OffsetKeeper, queue: MessageQueue, settings: PushSettings
) -> int:
    """The group's progress; where it has none, what `settings.from_where` says.

    Raises when it cannot be told now: a queue must not start at a guess.
    """
    kept = await keeper.read(queue)
    if kept is not None:
        return kept
    offsets = QueueOffsets(client)
    is_retry = queue.topic.startswith(RETRY_TOPIC_PREFIX)
    if settings.from_where == FROM_LAST_OFFSET:
        # Nothing that a member sent back may be skipped.
        return 0 if is_retry else await offsets.max_offset(queue)
    if settings.from_where == FROM_FIRST_OFFSET:
        return await offsets.min_offset(queue)
    if is_retry:
        return await offsets.max_offset(queue)
    return await offsets.offset_by_time(queue, settings.from_timestamp_ms)
