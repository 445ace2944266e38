"""Offsets of groups: reset one queue, copy another group's offsets, positions of members."""

from __future__ import annotations

from typing import Any

from broker_core.client.admin.admin import Admin
from broker_core.client.admin.answers import answer_object, read_answer
from broker_core.client.admin.topics import topic_masters
from broker_core.codec.json.fields import object_field
from broker_core.codec.wire.bodies.message_queue import MessageQueue, parse_queue_map
from broker_core.errors import RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode

# Answers of brokers that cannot reset a queue to an offset; 4.9 ignores the offset.
_BY_COMMIT = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


async def reset_queue(admin: Admin, group: str, queue: MessageQueue, offset: int) -> int:
    """Reset the offset of a group in one queue. Returns the new offset."""
    ext = {
        "topic": queue.topic,
        "group": group,
        "timestamp": "-1",
        "isForce": "true",
        "queueId": str(queue.queue_id),
        "offset": str(offset),
    }
    address = (await topic_masters(admin, queue.topic))[queue.broker_name]
    try:
        answer = await admin.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        found = answer_object(address, answer)
        table = read_answer(address, parse_queue_map, found.get("offsetTable"))
    except RemoteError as error:
        if error.code not in _BY_COMMIT:
            raise
        table = {}
    if table.get(queue) != offset:
        await admin.commit_offset(group, queue, offset)
    return offset


async def clone_group(admin: Admin, source: str, to: str, topic: str) -> dict[MessageQueue, int]:
    """Copy the offsets of a group in a topic to another group that is offline."""
    copied = {}
    for queue, offset in (await admin.committed_offsets(source, topic)).items():
        if offset is not None:
            await admin.commit_offset(to, queue, offset)
            copied[queue] = offset
    return copied


async def member_positions(
    admin: Admin, group: str, topic: str, client_id: str = ""
) -> dict[str, dict[MessageQueue, Any]]:
    """Client id → position of that member in each of its queues."""
    ext = {"topic": topic, "group": group}
    if client_id:
        ext["clientAddr"] = client_id
    positions: dict[str, dict[MessageQueue, Any]] = {}
    for address in (await topic_masters(admin, topic)).values():
        answer = await admin.ask(address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext)
        found = answer_object(address, answer)
        table = read_answer(address, object_field, found, "consumerTable")
        for name in table:
            queues = read_answer(address, parse_queue_map, table[name])
            positions.setdefault(name, {}).update(queues)
    return positions
