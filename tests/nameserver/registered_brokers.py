"""Registrations as tests write them: a broker, its topics, a version."""

from __future__ import annotations

from typing import Any

from broker_core.codec.wire.bodies.topic_config import DataVersion, TopicConfig
from broker_core.nameserver.broker_identity import BrokerIdentity
from broker_core.nameserver.broker_registration import BrokerRegistration
from broker_core.nameserver.route_table import RegisterResult, RouteTable

CLUSTER = "DefaultCluster"
MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"


def identity(
    name: str = "broker-a", broker_id: int = 0, address: str = MASTER, cluster: str = CLUSTER
) -> BrokerIdentity:
    return BrokerIdentity(cluster, name, broker_id, address)


def topic(name: str, queues: int = 8, **fields: Any) -> TopicConfig:
    return TopicConfig(name, queues, queues, **fields)


def registration(
    *topics: str | TopicConfig,
    who: BrokerIdentity | None = None,
    version: DataVersion | int = 1,
    **fields: Any,
) -> BrokerRegistration:
    return BrokerRegistration(
        who or identity(),
        version if isinstance(version, DataVersion) else DataVersion(version),
        tuple(topic(item) if isinstance(item, str) else item for item in topics),
        **fields,
    )


def register(
    table: RouteTable,
    *topics: str | TopicConfig,
    connection: object = "connection",
    now_ms: float = 0,
    **fields: Any,
) -> RegisterResult:
    return table.register(registration(*topics, **fields), connection, now_ms)


def addresses(table: RouteTable, name: str = "broker-a") -> dict[int, str]:
    return dict(table.member_group(CLUSTER, name).addresses)


def perm(table: RouteTable, name: str) -> int:
    route = table.route(name)
    assert route is not None
    [queues] = route.queues
    return queues.perm
