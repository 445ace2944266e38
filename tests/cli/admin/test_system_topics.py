"""Topics that brokers make, and those of users."""

from __future__ import annotations

import pytest
from broker_core.cli.admin.system_topics import is_system_topic

from broker_core.codec.wire.bodies.route_data import BrokerData, ClusterInfo

INFO = ClusterInfo({"broker-a": BrokerData("c", "broker-a", {})}, {"c": ("broker-a",)})


@pytest.mark.parametrize(
    "name",
    ["TBW102", "broker-a", "c", "%RETRY%g", "%DLQ%g", "c_REPLY_TOPIC", "RMQ_SYS_TRACE_TOPIC",
     "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"],
)  # fmt: skip
def test_of_the_system(name: str) -> None:
    assert is_system_topic(name, INFO)


@pytest.mark.parametrize("name", ["orders", "broker-b", "RMQ_orders", "TBW1024", "replies"])
def test_of_users(name: str) -> None:
    assert not is_system_topic(name, INFO)
