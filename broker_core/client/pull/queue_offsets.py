"""Offsets of queues (first, next, by time) and committed offsets of groups."""

from __future__ import annotations

import asyncio
from typing import Final

from broker_core.client.connection.instance import ClientInstance, checked
from broker_core.client.connection.topic_queues import Queues
from broker_core.codec.json.dialect import parse_json
from broker_core.codec.json.fields import I64_MAX, I64_MIN, whole_field, whole_number
from broker_core.codec.wire.bodies.message_queue import MessageQueue, parse_queue_map
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    InvalidArgument,
    MalformedJson,
    QueryNotFound,
    RemoteError,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import RequestCode, ResponseCode

EARLIEST_MS: Final = 0
LATEST_MS: Final = -1
"""For `reset_offsets`: the end of each queue."""

# Answers of brokers that cannot reset this group: 4.9 for a group that is offline or has no
# progress, and brokers that do not know the request.
_RESET_BY_HAND: Final = frozenset(
    {
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    }
)


class QueueOffsets:
    """Offset requests of `Admin` and `PullConsumer`."""

    def __init__(self, client: ClientInstance) -> None:
        self.client = client

    async def queues(self, topic: str) -> Queues:
        """The readable queues of a topic, in order. Raises `TopicNotExist`."""
        return await self.client.routes.subscribe_queues(topic, refresh=True)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that can still be read."""
        # Brokers answer -1 for a queue that was never written to.
        return max(await self._offset(queue, RequestCode.GET_MIN_OFFSET), 0)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return max(await self._offset(queue, RequestCode.GET_MAX_OFFSET), 0)

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at that time or later, as the broker determines it."""
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return max(await self._offset(queue, code, timestamp=str(timestamp_ms)), 0)

    async def topic_offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """First and next offset of every readable queue."""
        queues = await self.queues(topic)
        first = await asyncio.gather(*map(self.min_offset, queues))
        last = await asyncio.gather(*map(self.max_offset, queues))
        return dict(zip(queues, zip(first, last, strict=True), strict=True))

    # Progress of groups

    async def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The committed offset of a group; None if there is none."""
        ext = {"consumerGroup": group, "setZeroIfNotFound": "false"}
        try:
            return await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, **ext)
        except QueryNotFound:
            return None

    async def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """`committed_offset` of every readable queue of a topic."""
        queues = await self.queues(topic)
        found = await asyncio.gather(*(self.committed_offset(group, queue) for queue in queues))
        return dict(zip(queues, found, strict=True))

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of a group. A broker may ignore a smaller one: see `reset_offsets`."""
        if not 0 <= offset <= I64_MAX:
            raise InvalidArgument(f"offset {offset} is negative or too large")
        ext = {"consumerGroup": group, "commitOffset": str(offset)}
        await self._ask_queue(queue, RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        """Reset a group in every queue to a time, `EARLIEST_MS` or `LATEST_MS`.

        Members that are online follow at once. Returns the new offsets.
        """
        queues = await self.queues(topic)
        reset: dict[MessageQueue, int] = {}
        for broker in sorted({queue.broker_name for queue in queues}):
            found = await self._reset_on(broker, group, topic, timestamp_ms)
            if found is None:
                mine = [queue for queue in queues if queue.broker_name == broker]
                found = await self._reset_by_hand(group, mine, timestamp_ms)
            reset.update(found)
        return reset

    async def _reset_on(
        self, broker: str, group: str, topic: str, timestamp_ms: int
    ) -> dict[MessageQueue, int] | None:
        """None when this broker does not support the reset."""
        ext = {
            "topic": topic,
            "group": group,
            "timestamp": str(timestamp_ms),
            "isForce": "true",
            "queueId": "-1",
            "offset": "-1",
        }
        command = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        answer = await self.client.request_broker(broker, command)
        if answer.code in _RESET_BY_HAND:
            return None
        checked(answer)
        try:
            body = parse_json(answer.body, references=True)
            table = parse_queue_map(body.get("offsetTable") if isinstance(body, dict) else None)
            return {
                queue: whole_field({"offset": offset}, "offset", None, 0, I64_MAX)
                for queue, offset in table.items()
            }
        except (InvalidArgument, MalformedJson) as error:
            raise UnexpectedAnswer(f"{broker} reset offsets and answered: {error}") from None

    async def _reset_by_hand(
        self, group: str, queues: list[MessageQueue], timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        reset = {}
        for queue in queues:
            if timestamp_ms == LATEST_MS:
                offset = await self.max_offset(queue)
            else:
                offset = await self.offset_by_time(queue, timestamp_ms)
            await self.commit_offset(group, queue, offset)
            reset[queue] = offset
        return reset

    async def _offset(self, queue: MessageQueue, code: int, **ext: str) -> int:
        answer = await self._ask_queue(queue, code, ext)
        try:
            return whole_number(answer.ext.get("offset", ""), "offset", I64_MIN, I64_MAX)
        except InvalidArgument as error:
            raise UnexpectedAnswer(f"{queue.broker_name}: {error}") from None

    async def _ask_queue(
        self, queue: MessageQueue, code: int, ext: dict[str, str]
    ) -> RemotingCommand:
        await self.client.routes.route(queue.topic)
        command = RemotingCommand(
            code,
            {
                "topic": queue.topic,
                "queueId": str(queue.queue_id),
                "bname": queue.broker_name,
                **ext,
            },
        )
        answer = await self.client.request_broker(queue.broker_name, command, or_any=True)
        if answer.code != ResponseCode.SUCCESS:
            text = f"queue {queue.queue_id} of topic {queue.topic} at {queue.broker_name}"
            raise RemoteError.for_code(answer.code, f"{text}: {answer.remark or answer.code}")
        return answer
