"""System topics of RocketMQ, which commands hide by default."""

from __future__ import annotations

from typing import Final

from broker_core.codec.wire.bodies.route_data import ClusterInfo

_NAMES: Final = frozenset(
    {
        "BenchmarkTest",
        "DefaultHeartBeatSyncerTopic",
        "OFFSET_MOVED_EVENT",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TBW102",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
_STARTS: Final = ("%retry%", "%dlq%", "rmq_sys_", "cid_rmq_sys_", "sync_broker_member_")
_ENDS: Final = ("_REPLY_TOPIC",)


def is_system_topic(name: str, info: ClusterInfo) -> bool:
    """Whether brokers create this topic, such as one named like a cluster or a broker."""
    if name in _NAMES or name in info.clusters or name in info.brokers:
        return True
    return name.lower().startswith(_STARTS) or name.endswith(_ENDS)
