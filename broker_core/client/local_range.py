"""Asks a broker of ours how to read a queue from its files, for a reader on the same host."""

from __future__ import annotations

import logging
from typing import Final

from broker_core.client.client_instance import ClientInstance
from broker_core.codec.local_range import LocalRange, parse_local_range
from broker_core.codec.message_queue import MessageQueue
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import RmqError
from broker_core.protocol_codes import RequestCode, ResponseCode

_log = logging.getLogger(__name__)

_MASTER_ID: Final = 0


async def ask_local_range(
    client: ClientInstance, queue: MessageQueue, group: str
) -> LocalRange | None:
    """None when the broker does not offer it: another product, another host, or none there."""
    try:
        await client.routes.route(queue.topic)
        address = client.routes.broker_address(queue.broker_name, _MASTER_ID)
        if not (await client.capabilities.of(address)).local_reads:
            return None
        fields = {"consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id)}
        command = RemotingCommand(RequestCode.LOCAL_RANGE, fields)
        answer = await client.request_broker(queue.broker_name, command)
        return parse_local_range(answer.ext) if answer.code == ResponseCode.SUCCESS else None
    except RmqError as error:
        # Whatever it is, the network will tell it better.
        _log.info("%s is not read from files: %s", queue, error)
        return None
