"""Offsets that only a broker knows: the ends of a queue, and what was stored at a time."""

from __future__ import annotations

from broker_core.client.client_instance import ClientInstance
from broker_core.codec.json_fields import whole_number
from broker_core.codec.message_queue import MessageQueue
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, UnexpectedAnswer
from broker_core.protocol_codes import RequestCode


async def max_offset(client: ClientInstance, queue: MessageQueue) -> int:
    """The offset that the next message will get."""
    return await _ask(client, queue, RequestCode.GET_MAX_OFFSET)


async def min_offset(client: ClientInstance, queue: MessageQueue) -> int:
    """The oldest message that is still there."""
    # Some Apache versions say -1 for a queue that nothing was ever sent to.
    return max(0, await _ask(client, queue, RequestCode.GET_MIN_OFFSET))


async def offset_by_time(client: ClientInstance, queue: MessageQueue, time_ms: int) -> int:
    """The first message stored at `time_ms` (epoch milliseconds) or later."""
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    return await _ask(client, queue, code, timestamp=str(time_ms))


def offset_of(answer: RemotingCommand) -> int:
    """Field `offset` of an answer."""
    text = answer.ext.get("offset", "")
    try:
        return whole_number(text, "offset", -1)
    except InvalidArgument as error:
        raise UnexpectedAnswer(f"the answer of a broker: {error}") from None


async def _ask(client: ClientInstance, queue: MessageQueue, code: int, **more: str) -> int:
    ext = {"topic": queue.topic, "queueId": str(queue.queue_id), **more}
    # A topic that nobody asked for yet has no address here.
    await client.routes.route(queue.topic)
    command = RemotingCommand(code, ext)
    return offset_of(await client.ask_broker(queue.broker_name, command, or_any=True))
