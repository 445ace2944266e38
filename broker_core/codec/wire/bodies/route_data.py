"""Name-server bodies: topic routes, cluster info, topic lists, KV tables. Encoded and parsed here.

Bodies are encoded as compact standard JSON with quoted broker ids, which every client reads (the Go
client splits the text of `brokerAddrs` itself). Parsed bodies may be in RocketMQ's dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from broker_core.codec.json.dialect import emit_json, parse_object
from broker_core.codec.json.fields import (
    I32_MAX,
    I64_MAX,
    flag_field,
    list_field,
    object_field,
    text_field,
    whole_field,
    whole_number,
)
from broker_core.codec.wire.bodies.topic_config import PERM_MASK
from broker_core.codec.wire.system_topics import is_hidden
from broker_core.errors import InvalidArgument


class QueueData(NamedTuple):
    """The queues of one topic on one broker."""

    broker_name: str
    read_queue_count: int
    write_queue_count: int
    perm: int
    sys_flag: int = 0


class BrokerData(NamedTuple):
    """The members of one broker name: id 0 is the master, the others are its slaves."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRoute(NamedTuple):
    """Brokers and queues of a topic. `order_topic_conf`, if set, overrides them for producers."""

    brokers: tuple[BrokerData, ...]
    queues: tuple[QueueData, ...]
    order_topic_conf: str | None = None


class ClusterInfo(NamedTuple):
    """Every broker by name, and the broker names of every cluster."""

    brokers: Mapping[str, BrokerData]
    clusters: Mapping[str, tuple[str, ...]]

    def is_system_topic(self, name: str) -> bool:
        """Whether a topic is of the servers; lists of topics hide it, and patterns skip it."""
        return is_hidden(name, self.clusters, self.brokers)


class TopicList(NamedTuple):
    """Topic names; `broker_address` is set only in the list of system topics."""

    topics: tuple[str, ...]
    broker_address: str | None = None


def encode_topic_route(route: TopicRoute) -> bytes:
    """A TopicRouteData body."""
    body: dict[str, Any] = {
        "brokerDatas": [_broker_object(broker) for broker in route.brokers],
        "filterServerTable": {},
    }
    if route.order_topic_conf is not None:
        body["orderTopicConf"] = route.order_topic_conf
    body["queueDatas"] = [_queue_object(queue) for queue in route.queues]
    return emit_json(body, ascii_only=True)


def decode_topic_route(body: bytes | memoryview) -> TopicRoute:
    """The inverse of `encode_topic_route`, for bodies of any RocketMQ version."""
    found = parse_object(body, references=True)
    order = found.get("orderTopicConf")
    return TopicRoute(
        tuple(_parse_broker(broker) for broker in _objects(found, "brokerDatas")),
        tuple(_parse_queue(queue) for queue in _objects(found, "queueDatas")),
        None if order is None else text_field(found, "orderTopicConf"),
    )


def encode_cluster_info(info: ClusterInfo) -> bytes:
    """A ClusterInfo body."""
    return emit_json(
        {
            "brokerAddrTable": {n: _broker_object(broker) for n, broker in info.brokers.items()},
            "clusterAddrTable": {name: list(brokers) for name, brokers in info.clusters.items()},
        }
    )


def decode_cluster_info(body: bytes | memoryview) -> ClusterInfo:
    """The inverse of `encode_cluster_info`, dialect included."""
    found = parse_object(body, references=True)
    brokers = object_field(found, "brokerAddrTable")
    clusters = object_field(found, "clusterAddrTable")
    return ClusterInfo(
        {name: _parse_broker(object_field(brokers, name)) for name in brokers},
        {name: _texts(clusters, name) for name in clusters},
    )


def encode_topic_list(topics: TopicList) -> bytes:
    """A TopicList body."""
    body: dict[str, Any] = {}
    if topics.broker_address is not None:
        body["brokerAddr"] = topics.broker_address
    body["topicList"] = list(topics.topics)
    return emit_json(body)


def decode_topic_list(body: bytes | memoryview) -> TopicList:
    """The inverse of `encode_topic_list`."""
    found = parse_object(body, references=True)
    address = found.get("brokerAddr")
    return TopicList(
        _texts(found, "topicList"), None if address is None else text_field(found, "brokerAddr")
    )


def encode_member_group(broker: BrokerData) -> bytes:
    """The response to GET_BROKER_MEMBER_GROUP."""
    group = {
        "brokerAddrs": _addresses_object(broker.addresses),
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
    }
    return emit_json({"brokerMemberGroup": group})


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """A KVTable body."""
    return emit_json({"table": dict(table)})


def decode_kv_table(body: bytes | memoryview) -> dict[str, str]:
    """The inverse of `encode_kv_table`."""
    table = object_field(parse_object(body, references=True), "table")
    return {key: text_field(table, key) for key in table}


def _broker_object(broker: BrokerData) -> dict[str, Any]:
    found: dict[str, Any] = {
        "brokerAddrs": _addresses_object(broker.addresses),
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
        "enableActingMaster": broker.enable_acting_master,
    }
    if broker.zone_name is not None:
        found["zoneName"] = broker.zone_name
    return found


def _addresses_object(addresses: Mapping[int, str]) -> dict[str, str]:
    return {str(broker_id): addresses[broker_id] for broker_id in sorted(addresses)}


def _queue_object(queue: QueueData) -> dict[str, Any]:
    return {
        "brokerName": queue.broker_name,
        "perm": queue.perm,
        "readQueueNums": queue.read_queue_count,
        "topicSysFlag": queue.sys_flag,
        "writeQueueNums": queue.write_queue_count,
    }


def _parse_broker(found: Mapping[str, Any]) -> BrokerData:
    addresses = object_field(found, "brokerAddrs")
    zone = found.get("zoneName")
    return BrokerData(
        text_field(found, "cluster", ""),
        text_field(found, "brokerName"),
        {
            whole_number(key, "broker id", 0, I64_MAX): text_field(addresses, key)
            for key in addresses
        },
        flag_field(found, "enableActingMaster", False),
        None if zone is None else text_field(found, "zoneName"),
    )


def _parse_queue(found: Mapping[str, Any]) -> QueueData:
    # Very old peers and the Go client spell the flag `topicSynFlag`.
    sys_flag = whole_field(found, "topicSynFlag", 0, 0, I32_MAX)
    return QueueData(
        text_field(found, "brokerName"),
        whole_field(found, "readQueueNums", None, 0, I32_MAX),
        whole_field(found, "writeQueueNums", None, 0, I32_MAX),
        whole_field(found, "perm", None, 0, PERM_MASK),
        whole_field(found, "topicSysFlag", sys_flag, 0, I32_MAX),
    )


def _objects(found: Mapping[str, Any], name: str) -> Iterable[Mapping[str, Any]]:
    return (object_field({name: item}, name) for item in list_field(found, name))


def _texts(found: Mapping[str, Any], name: str) -> tuple[str, ...]:
    texts = tuple(list_field(found, name))
    if not all(isinstance(text, str) for text in texts):
        raise InvalidArgument(f"{name:.100} has an entry that is not a string")
    return texts
