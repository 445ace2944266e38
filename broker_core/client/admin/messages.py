"""Message tracking: which groups consumed a message; direct consumption by one member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_core.client.admin.admin import Admin
from broker_core.client.admin.answers import answer_object
from broker_core.client.admin.groups import consumer_connections, group_progress
from broker_core.client.admin.topics import topic_groups, topic_masters
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.heartbeat_data import BROADCASTING, CONSUME_ACTIVELY
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.message_id import encode_message_id
from broker_core.errors import BrokerNotExist, ConsumerNotOnline, InvalidArgument, RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode


class Track(NamedTuple):
    """What one group did with a message; RocketMQ's names."""

    group: str
    kind: str
    problem: str = ""


async def message_track(admin: Admin, record: MessageRecord) -> list[Track]:
    """What every group that consumes the topic did with a message."""
    tracks = []
    for group in await topic_groups(admin, record.topic):
        try:
            tracks.append(await _track(admin, group, record))
        except RemoteError as error:
            tracks.append(Track(group, "UNKNOWN", str(error)))
    return tracks


async def _track(admin: Admin, group: str, record: MessageRecord) -> Track:
    try:
        live = await consumer_connections(admin, group)
    except ConsumerNotOnline:
        return Track(group, "NOT_ONLINE")
    if live.consume_type == CONSUME_ACTIVELY:
        return Track(group, "PULL")
    if live.message_model == BROADCASTING:
        return Track(group, "CONSUME_BROADCASTING")
    if not await _is_consumed(admin, group, record):
        return Track(group, "NOT_CONSUME_YET")
    expression = live.subscriptions.get(record.topic, "*")
    wanted = {tag.strip() for tag in expression.split("||")}
    tag = record.properties.get("TAGS", "")
    if expression.strip() not in ("", "*") and tag not in wanted:
        return Track(group, "CONSUMED_BUT_FILTERED")
    return Track(group, "CONSUMED")


async def _is_consumed(admin: Admin, group: str, record: MessageRecord) -> bool:
    rows, _ = await group_progress(admin, group, record.topic)
    broker = await broker_of(admin, record)
    row = rows.get(MessageQueue(record.topic, broker, record.queue_id))
    return row is not None and row.consumed > record.queue_offset


async def broker_of(admin: Admin, record: MessageRecord) -> str:
    """The name of the broker that stored a message."""
    host, port = record.store_host
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    info = await admin.cluster_info()
    for name, broker in info.brokers.items():
        if address in broker.addresses.values():
            return name
    text = f"no name server lists {address}, which stored the message"
    raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)


def offset_id(record: MessageRecord) -> str:
    """The id by which a broker finds a stored message."""
    return encode_message_id(record.store_host, record.physical_offset)


async def consume_directly(
    admin: Admin, record: MessageRecord, group: str, client_id: str
) -> Mapping[str, Any]:
    """Let a member of a group consume a message now. Returns its answer."""
    if not client_id:
        raise InvalidArgument("name the consumer: its client id, as group connections lists it")
    broker = await broker_of(admin, record)
    address = (await topic_masters(admin, record.topic)).get(broker)
    if address is None:
        text = f"broker {broker} has no master that serves topic {record.topic}"
        raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
    ext = {
        "consumerGroup": group,
        "clientId": client_id,
        "msgId": offset_id(record),
        "topic": record.topic,
    }
    answer = await admin.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, timeout_ms=12_000)
    return answer_object(address, answer)
