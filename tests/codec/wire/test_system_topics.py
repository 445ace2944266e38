"""Every known topic of the servers, as judged by brokers, lists and the source's patterns."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker_core.broker.tables.default_topics import default_topics
from broker_core.codec.wire.bodies.route_data import ClusterInfo, TopicList
from broker_core.codec.wire.system_topics import (
    SYSTEM_TOPIC_STARTS,
    SYSTEM_TOPICS,
    refuses_pulls,
    refuses_sends,
)
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.topic_discovery import TopicDiscovery
from tests.broker.broker_tables import topic_table
from tests.store.small_store import new_disk

TOPICS = topic_table(new_disk())
CLUSTER = ClusterInfo(cast("Any", {"broker-a": None}), {"DefaultCluster": ("broker-a",)})

# Name -> belongs to our brokers, hidden by lists and patterns, clients may send, clients may pull.
JUDGED = {
    "TBW102": (True, True, True, True),
    "BenchmarkTest": (True, True, True, True),
    "RMQ_SYS_TRACE_TOPIC": (True, True, True, True),
    "OFFSET_MOVED_EVENT": (True, True, False, True),
    "SELF_TEST_TOPIC": (True, True, False, True),
    "TRANS_CHECK_MAX_TIME_TOPIC": (True, True, False, True),
    "SCHEDULE_TOPIC_XXXX": (True, True, False, False),
    "rmq_sys_wheel_timer": (True, True, False, False),
    "RMQ_SYS_TRANS_HALF_TOPIC": (True, True, False, False),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (True, True, False, False),
    "rmq_sys_append_group": (True, True, False, False),
    # By how they begin.
    "rmq_sys_REVIVE_LOG_DefaultCluster": (True, True, True, True),
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (True, True, True, True),
    # Names of the cluster and its broker.
    "DefaultCluster": (True, True, True, True),
    "DefaultCluster_REPLY_TOPIC": (True, True, True, True),
    "broker-a": (True, True, True, True),
    # Of Apache's brokers and proxy, and of consumer groups.
    "DefaultHeartBeatSyncerTopic": (False, True, True, True),
    "RMQ_SYS_ROCKSDB_OFFSET_TOPIC": (False, True, True, True),
    "CID_RMQ_SYS_TRANS": (False, True, True, True),
    "%RETRY%billing": (False, True, True, True),
    "%DLQ%billing": (False, True, True, True),
    # Of users.
    "orders": (False, False, True, True),
    "orders_REPLY_TOPIC": (False, False, True, True),
    "_REPLY_TOPIC": (False, False, True, True),
    "TBW1020": (False, False, True, True),
    "tbw102": (False, False, True, True),
    "a_rmq_sys_b": (False, False, True, True),
    "rmq_sys": (False, False, True, True),
    "RETRY": (False, False, True, True),
    "%retry%billing": (False, False, True, True),
    "sync_broker_member_a": (False, False, True, True),
    "default": (False, False, True, True),
    "OtherCluster_REPLY_TOPIC": (False, False, True, True),
}


def matched(pattern: str) -> set[str]:
    """What the source finds when a cluster has all topics of `JUDGED`."""

    async def cluster_info() -> ClusterInfo:
        return CLUSTER

    async def topic_list() -> TopicList:
        return TopicList(tuple(JUDGED))

    servers = SimpleNamespace(cluster_info=cluster_info, topic_list=topic_list)
    options = SourceOptions.parse({"nameServer": "h:9876", "subscribePattern": pattern})
    client = cast("Any", SimpleNamespace(name_servers=servers))
    return {*asyncio.run(TopicDiscovery(client, options).topics())}


def test_every_row_of_the_table_is_judged() -> None:
    assert SYSTEM_TOPICS.keys() <= JUDGED.keys()
    for start in SYSTEM_TOPIC_STARTS:
        rest = JUDGED.keys() - SYSTEM_TOPICS.keys()
        assert any(name.startswith(start) for name in rest), start


def test_every_topic_that_a_broker_creates_is_judged() -> None:
    created = default_topics(
        "DefaultCluster", "broker-a", auto_create=True, default_queue_count=8, trace_topic=True
    )
    assert {topic.name for topic in created} <= JUDGED.keys()


@pytest.mark.parametrize("name", JUDGED)
def test_what_belongs_to_a_broker(name: str) -> None:
    assert TOPICS.is_system(name) == JUDGED[name][0]


@pytest.mark.parametrize("name", JUDGED)
def test_what_lists_hide(name: str) -> None:
    assert CLUSTER.is_system_topic(name) == JUDGED[name][1]


def test_patterns_skip_what_lists_hide() -> None:
    assert matched(".*") == {name for name, row in JUDGED.items() if not row[1]}


def test_a_pattern_that_begins_with_a_percent_sign_skips_nothing() -> None:
    assert matched("%.*") == {name for name in JUDGED if name.startswith("%")}


@pytest.mark.parametrize("name", JUDGED)
def test_what_clients_may_send_and_pull(name: str) -> None:
    assert refuses_sends(name) != JUDGED[name][2]
    assert refuses_pulls(name) != JUDGED[name][3]
