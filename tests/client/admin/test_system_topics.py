"""Topics of users and of RocketMQ itself."""

from __future__ import annotations

import pytest

from broker_core.client.admin.system_topics import is_system_topic
from broker_core.codec.wire.bodies.route_data import ClusterInfo

INFO = ClusterInfo({}, {"DefaultCluster": ("broker-a",)})


@pytest.mark.parametrize(
    "name",
    [
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "%RETRY%billing",
        "%DLQ%billing",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
        "DefaultCluster",
        "DefaultCluster_REPLY_TOPIC",
    ],
)
def test_a_topic_of_rocketmq(name: str) -> None:
    assert is_system_topic(name, INFO)


@pytest.mark.parametrize("name", ["orders", "TBW1020", "RETRY", "a_rmq_sys_b", "default"])
def test_a_topic_of_a_user(name: str) -> None:
    assert not is_system_topic(name, INFO)
