"""Consumer and producer groups: progress, connections, state of a member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_core.client.admin.admin import Admin
from broker_core.client.admin.answers import answer_object, read_answer
from broker_core.client.admin.topics import topic_masters
from broker_core.codec.json.fields import list_field, object_field, text_field, whole_field
from broker_core.codec.wire.bodies.group_config import GroupConfig, parse_group_table
from broker_core.codec.wire.bodies.message_queue import MessageQueue, parse_queue_map
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX, is_system_group
from broker_core.errors import ConsumerNotOnline, GroupNotExist, RemoteError, TopicNotExist
from broker_core.protocol_codes import RequestCode, ResponseCode


class Progress(NamedTuple):
    """Progress of a group in one queue, and the store time of the last consumed message."""

    end: int
    consumed: int
    last_ms: int

    @property
    def behind(self) -> int:
        """Messages not consumed yet."""
        return max(self.end - self.consumed, 0)


class Connected(NamedTuple):
    """One connection of a group."""

    client_id: str
    address: str
    language: str
    version: int


class ConsumerConnections(NamedTuple):
    """The members of a consumer group and their subscriptions."""

    connections: tuple[Connected, ...]
    consume_type: str
    message_model: str
    consume_from: str
    subscriptions: Mapping[str, str]


async def all_groups(admin: Admin, address: str) -> dict[str, GroupConfig]:
    """Every group that a broker knows, as it is configured there."""
    answer = await admin.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    found = answer_object(address, answer)
    table = read_answer(address, _group_table, found)
    return {group.name: group for group in table}


async def user_groups(admin: Admin, address: str) -> dict[str, GroupConfig]:
    """`all_groups` without those of the servers."""
    found = await all_groups(admin, address)
    return {name: group for name, group in found.items() if not is_system_group(name)}


def _group_table(found: Mapping[str, Any]) -> tuple[GroupConfig, ...]:
    return parse_group_table(object_field(found, "subscriptionGroupTable"))


async def group_masters(admin: Admin, group: str) -> dict[str, str]:
    """Brokers of a group: those of its retry topic, else every broker that knows the group."""
    try:
        return await topic_masters(admin, f"{RETRY_TOPIC_PREFIX}{group}")
    except TopicNotExist:
        pass
    found = {}
    for name, address in (await _all_masters(admin)).items():
        if group in await all_groups(admin, address):
            found[name] = address
    if not found:
        raise GroupNotExist(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no broker knows group {group}"
        )
    return found


async def _all_masters(admin: Admin) -> dict[str, str]:
    return {name: address for _, name, number, address in await admin.members() if number == 0}


async def group_progress(
    admin: Admin, group: str, topic: str = ""
) -> tuple[dict[MessageQueue, Progress], float]:
    """Progress of a group in every queue, and its messages per second."""
    ext = {"consumerGroup": group}
    if topic:
        ext["topic"] = topic
    masters = await topic_masters(admin, topic) if topic else await group_masters(admin, group)
    rows: dict[MessageQueue, Progress] = {}
    rate = 0.0
    for address in masters.values():
        answer = await admin.ask(address, RequestCode.GET_CONSUME_STATS, ext)
        found = answer_object(address, answer)
        rows.update(read_answer(address, progress_rows, found))
        rate += _float(found.get("consumeTps"))
    return dict(sorted(rows.items())), rate


def progress_rows(found: Mapping[str, Any]) -> dict[MessageQueue, Progress]:
    """The rows of one ConsumeStats object."""
    rows = {}
    for queue, row in parse_queue_map(found.get("offsetTable")).items():
        fields = object_field({"row": row}, "row")
        rows[queue] = Progress(
            whole_field(fields, "brokerOffset", 0),
            max(whole_field(fields, "consumerOffset", 0), 0),
            whole_field(fields, "lastTimestamp", 0),
        )
    return rows


async def consumer_connections(admin: Admin, group: str) -> ConsumerConnections:
    """The connected members. Raises `ConsumerNotOnline` if no broker has any."""
    members: dict[str, Connected] = {}
    last: ConsumerConnections | None = None
    for address in (await group_masters(admin, group)).values():
        try:
            answer = await admin.ask(
                address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
            )
        except ConsumerNotOnline:
            continue
        found = answer_object(address, answer)
        last = read_answer(address, _connections, found)
        members.update((each.client_id, each) for each in last.connections)
    if last is None:
        raise ConsumerNotOnline(ResponseCode.CONSUMER_NOT_ONLINE, f"group {group} is not online")
    return last._replace(connections=tuple(members[name] for name in sorted(members)))


async def producer_connections(admin: Admin, group: str, topic: str) -> tuple[Connected, ...]:
    """The producers of a group that are connected to the brokers of a topic."""
    members: dict[str, Connected] = {}
    refusal: RemoteError | None = None
    for address in (await topic_masters(admin, topic)).values():
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        try:
            answer = await admin.ask(address, code, {"producerGroup": group})
        except RemoteError as error:
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            refusal = error
            continue
        found = answer_object(address, answer)
        listed = read_answer(address, _connected, found)
        members.update((each.client_id, each) for each in listed)
    if not members and refusal is not None:
        raise refusal
    return tuple(members[name] for name in sorted(members))


async def all_producers(admin: Admin, address: str) -> list[tuple[str, Connected]]:
    """Every connected producer of a broker, by group."""
    answer = await admin.ask(address, RequestCode.GET_ALL_PRODUCER_INFO)
    return read_answer(address, _producers, answer_object(address, answer))


def _producers(found: Mapping[str, Any]) -> list[tuple[str, Connected]]:
    data = object_field(found, "data")
    return [
        (
            group,
            Connected(
                text_field(item, "clientId", ""),
                text_field(item, "remoteIP", ""),
                text_field(item, "language", ""),
                whole_field(item, "version", 0),
            ),
        )
        for group in sorted(data)
        for item in list_field(data, group)
        if isinstance(item, dict)
    ]


async def running_info(
    admin: Admin, group: str, client_id: str, with_stacks: bool = False
) -> Mapping[str, Any]:
    """The state of one member, requested through a broker that it is connected to."""
    ext = {
        "consumerGroup": group,
        "clientId": client_id,
        "jstackEnable": "true" if with_stacks else "false",
    }
    refusal: RemoteError | None = None
    for address in (await group_masters(admin, group)).values():
        try:
            answer = await admin.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
        except RemoteError as error:
            refusal = error
            continue
        return answer_object(address, answer)
    assert refusal is not None
    raise refusal


def _connections(found: Mapping[str, Any]) -> ConsumerConnections:
    table = object_field(found, "subscriptionTable")
    return ConsumerConnections(
        _connected(found),
        text_field(found, "consumeType", ""),
        text_field(found, "messageModel", ""),
        text_field(found, "consumeFromWhere", ""),
        {topic: text_field(object_field(table, topic), "subString", "") for topic in sorted(table)},
    )


def _connected(found: Mapping[str, Any]) -> tuple[Connected, ...]:
    return tuple(
        Connected(
            text_field(item, "clientId", ""),
            text_field(item, "clientAddr", ""),
            text_field(item, "language", ""),
            whole_field(item, "version", 0),
        )
        for item in list_field(found, "connectionSet")
        if isinstance(item, dict)
    )


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
