"""System topics of RocketMQ, which commands hide by default."""

from __future__ import annotations

from typing import Final

from broker_core.codec.wire.bodies.route_data import ClusterInfo
from broker_core.codec.wire.topic_name import (
    BENCHMARK_TOPIC,
    DLQ_TOPIC_PREFIX,
    OFFSET_MOVED_TOPIC,
    REPLY_TOPIC_SUFFIX,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TEMPLATE_TOPIC,
    TRANSACTION_GIVEN_UP_TOPIC,
)

_NAMES: Final = frozenset(
    {
        BENCHMARK_TOPIC,
        "DefaultHeartBeatSyncerTopic",
        OFFSET_MOVED_TOPIC,
        SCHEDULE_TOPIC,
        SELF_TEST_TOPIC,
        TEMPLATE_TOPIC,
        TRANSACTION_GIVEN_UP_TOPIC,
    }
)
_STARTS: Final = (
    RETRY_TOPIC_PREFIX.lower(),
    DLQ_TOPIC_PREFIX.lower(),
    SYSTEM_TOPIC_PREFIX,
    "cid_rmq_sys_",
    "sync_broker_member_",
)


def is_system_topic(name: str, info: ClusterInfo) -> bool:
    """Whether brokers create this topic, such as one named like a cluster or a broker."""
    if name in _NAMES or name in info.clusters or name in info.brokers:
        return True
    return name.lower().startswith(_STARTS) or name.endswith(REPLY_TOPIC_SUFFIX)
