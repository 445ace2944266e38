"""Topics: offsets of their queues, consuming groups, configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from broker_core.client.admin.admin import Admin
from broker_core.client.admin.answers import answer_object, read_answer
from broker_core.codec.json.fields import list_field, object_field, whole_field
from broker_core.codec.wire.bodies.message_queue import MessageQueue, parse_queue_map
from broker_core.codec.wire.bodies.route_data import TopicRoute, decode_topic_list
from broker_core.codec.wire.bodies.topic_config import TopicConfig, parse_topic_table
from broker_core.errors import BrokerNotExist, TopicNotExist
from broker_core.protocol_codes import MASTER_ID, RequestCode, ResponseCode


class QueueSpan(NamedTuple):
    """Offsets `[low, end)` of a queue and the store time of its newest message."""

    low: int
    end: int
    newest_ms: int


async def topic_masters(admin: Admin, topic: str) -> dict[str, str]:
    """Broker name → address of the master, for every broker that has the topic."""
    return route_masters(admin, await admin.route(topic))


def route_masters(admin: Admin, route: TopicRoute) -> dict[str, str]:
    """Broker name → address of the master, for every broker of a route that has one."""
    found = {
        broker.broker_name: admin.client.routes.rewritten(broker.addresses[MASTER_ID])
        for broker in route.brokers
        if MASTER_ID in broker.addresses
    }
    if not found:
        text = "no broker of this topic has a master at the name servers"
        raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
    return dict(sorted(found.items()))


async def topic_status(admin: Admin, topic: str) -> dict[MessageQueue, QueueSpan]:
    """Every queue of a topic, in order."""
    spans: dict[MessageQueue, QueueSpan] = {}
    for address in (await topic_masters(admin, topic)).values():
        answer = await admin.ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        found = answer_object(address, answer)
        spans.update(read_answer(address, _spans, found))
    return dict(sorted(spans.items()))


def _spans(found: Mapping[str, Any]) -> dict[MessageQueue, QueueSpan]:
    spans = {}
    for queue, row in parse_queue_map(found.get("offsetTable")).items():
        fields = object_field({"row": row}, "row")
        spans[queue] = QueueSpan(
            max(whole_field(fields, "minOffset", 0), 0),
            max(whole_field(fields, "maxOffset", 0), 0),
            whole_field(fields, "lastUpdateTimestamp", 0),
        )
    return spans


async def topic_groups(admin: Admin, topic: str) -> list[str]:
    """The groups that consume a topic or did so before."""
    groups: set[str] = set()
    for address in (await topic_masters(admin, topic)).values():
        answer = await admin.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        found = answer_object(address, answer)
        groups.update(map(str, read_answer(address, list_field, found, "groupList")))
    return sorted(groups)


async def topic_configs(admin: Admin, address: str) -> dict[str, TopicConfig]:
    """The configuration of every topic of a broker."""
    answer = await admin.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    found = answer_object(address, answer)
    table = read_answer(address, _topic_table, found)
    return {topic.name: topic for topic in table}


def _topic_table(found: Mapping[str, Any]) -> tuple[TopicConfig, ...]:
    return parse_topic_table(object_field(found, "topicConfigTable"))


async def topic_config(admin: Admin, topic: str) -> dict[str, TopicConfig]:
    """Broker name → its configuration of a topic."""
    return (await configs_of(admin, [topic]))[topic]


async def configs_of(admin: Admin, topics: Sequence[str]) -> dict[str, dict[str, TopicConfig]]:
    """Topic → broker name → configuration; each broker is asked once."""
    by_address: dict[str, dict[str, TopicConfig]] = {}
    configs: dict[str, dict[str, TopicConfig]] = {}
    for topic in topics:
        configs[topic] = {}
        for name, address in (await topic_masters(admin, topic)).items():
            if address not in by_address:
                by_address[address] = await topic_configs(admin, address)
            if topic in by_address[address]:
                configs[topic][name] = by_address[address][topic]
        if not configs[topic]:
            text = f"topic {topic} is in the route, but no broker has it"
            raise TopicNotExist(ResponseCode.TOPIC_NOT_EXIST, text)
    return configs


async def topics_of_cluster(admin: Admin, cluster: str) -> list[str]:
    """The topics of one cluster, system topics included."""
    name_servers = admin.client.name_servers
    answer = await name_servers.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})
    return sorted(read_answer("the name server", decode_topic_list, answer.body).topics)
