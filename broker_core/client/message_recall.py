"""Takes timer messages back: RECALL_MESSAGE to the broker on which the message waits."""

from __future__ import annotations

from typing import NamedTuple

from broker_core.client.client_instance import ClientInstance
from broker_core.codec.recall_handle import decode_handle
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument
from broker_core.protocol_codes import RequestCode


class RecallResult(NamedTuple):
    """`is_confirmed` says that the message was there and will not come.

    RocketMQ's brokers answer without looking, so that theirs are never confirmed.
    """

    msg_id: str
    is_confirmed: bool


async def recall_message(
    client: ClientInstance, group: str, topic: str, handle: str, timeout_ms: float
) -> RecallResult:
    """Ask the broker that the handle names."""
    place = decode_handle(handle)
    if place.topic != topic:
        raise InvalidArgument(f"the recall handle is one of topic {place.topic}, not of {topic}")
    # So that the address of its broker is known.
    await client.routes.route(topic)
    command = RemotingCommand(
        RequestCode.RECALL_MESSAGE,
        {
            "producerGroup": group,
            "topic": topic,
            "recallHandle": handle,
            "bname": place.broker_name,
        },
    )
    answer = await client.ask_broker(place.broker_name, command, timeout_ms)
    return RecallResult(answer.ext.get("msgId", ""), answer.ext.get("recalled") == "true")
