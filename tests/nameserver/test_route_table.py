"""Registrations merge into routes by RocketMQ's rules; listings show what is there, at once."""

from __future__ import annotations

import pytest

from broker_core.codec.wire.bodies.route_data import BrokerData, QueueData, TopicRoute
from broker_core.codec.wire.bodies.topic_config import DataVersion
from broker_core.errors import InvalidArgument, RemoteError
from broker_core.nameserver.route_table import RouteTable
from broker_core.nameserver.settings import RouteLimits
from tests.nameserver.registered_brokers import (
    CLUSTER,
    MASTER,
    SLAVE,
    addresses,
    identity,
    perm,
    register,
    topic,
)


def test_a_route_shows_the_broker_and_its_queues() -> None:
    table = RouteTable()
    register(table, topic("T1", 4, sys_flag=1), "TBW102")
    assert table.route("T1") == TopicRoute(
        (BrokerData(CLUSTER, "broker-a", {0: MASTER}),), (QueueData("broker-a", 4, 4, 6, 1),)
    )
    assert table.route("unknown") is None


def test_rule_1_an_address_has_one_id() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    register(table, who=identity(broker_id=1, address=SLAVE))
    register(table, "T1", "T2", who=identity(broker_id=0, address=SLAVE))
    assert addresses(table) == {0: SLAVE}


def test_rule_2_a_stale_newcomer_is_ignored() -> None:
    table = RouteTable()
    register(table, "T1", "T2", version=DataVersion(1, state_version=5))
    before = table.revision
    stale = register(
        table, "T1", "T3", who=identity(address=SLAVE), version=DataVersion(9, state_version=4)
    )
    assert stale.stale
    assert addresses(table) == {0: MASTER}
    assert table.route("T3") is None
    assert table.revision == before


def test_rule_2_a_newcomer_of_equal_state_takes_over() -> None:
    table = RouteTable()
    register(table, "T1", "T2", version=DataVersion(1, state_version=5), connection="old")
    result = register(
        table, "T1", "T2", who=identity(address=SLAVE), version=DataVersion(1, 5), connection="new"
    )
    assert not result.stale
    assert addresses(table) == {0: SLAVE}
    table.connection_closed("old")
    assert addresses(table) == {0: SLAVE}


def test_rule_3_an_incremental_registration_is_merged() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    register(table, topic("T1", 16), version=2)
    assert table.topics().topics == ("T1", "T2")
    route = table.route("T1")
    assert route is not None
    assert route.queues[0].read_queue_count == 16


def test_rule_3_an_unchanged_version_changes_no_known_topic() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    register(table, topic("T1", 16), "T2", "T3")
    route = table.route("T1")
    assert route is not None
    assert route.queues[0].read_queue_count == 8
    assert table.route("T3") is not None, "a topic that is not mapped yet is added"


def test_rule_3_a_missing_topic_is_not_removed() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    register(table, "T2", "T3", version=2)
    assert table.topics().topics == ("T1", "T2", "T3")


def test_rule_3_a_slave_of_4_9_says_nothing_about_topics() -> None:
    table = RouteTable()
    register(table, "T1", "T2", who=identity(broker_id=1, address=SLAVE))
    assert table.topics().topics == ()
    assert addresses(table) == {1: SLAVE}


def test_rule_3_the_smallest_id_of_5_x_stands_in_for_the_master() -> None:
    table = RouteTable()
    slave = identity(broker_id=1, address=SLAVE)
    register(table, "T1", "T2", who=slave, enable_acting_master=True)
    assert perm(table, "T1") == 4, "it serves reads only"
    register(table, "T1", "T2")
    register(table, "T3", "T4", who=slave, enable_acting_master=True, version=2)
    assert table.topics().topics == ("T1", "T2"), "the master is back"


def test_rule_4_the_live_state_is_refreshed() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    register(table, "T1", "T2", version=7, now_ms=100_000)
    assert table.data_version(identity()) == DataVersion(7)
    assert table.expire(200_000) == []


def test_rule_5_a_first_registration_with_one_topic_is_refused() -> None:
    table = RouteTable()
    with pytest.raises(RemoteError, match="register broker failed") as refused:
        register(table, "T1")
    assert refused.value.response_code == 1
    assert table.cluster_info().brokers == {}
    register(table, "T1", "T2")
    register(table, "T3", version=2)
    assert table.topics().topics == ("T1", "T2", "T3")


def test_an_unchanged_heartbeat_changes_no_revision() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    before = table.revision
    register(table, "T1", "T2", now_ms=30_000)
    assert table.revision == before


def test_a_slave_gets_its_master() -> None:
    table = RouteTable()
    slave = identity(broker_id=1, address=SLAVE)
    alone = register(table, who=slave)
    assert (alone.master_address, alone.ha_address) == (None, None)
    master = register(table, "T1", "T2", ha_address="10.0.0.1:10912")
    assert (master.master_address, master.ha_address) == (None, None)
    told = register(table, who=slave)
    assert (told.master_address, told.ha_address) == (MASTER, "10.0.0.1:10912")


def test_a_broker_name_stays_in_its_cluster() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    with pytest.raises(InvalidArgument, match="belongs to cluster"):
        register(table, "T1", "T2", who=identity(cluster="Other", address=SLAVE))
    assert addresses(table) == {0: MASTER}


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a b", "\u0430", "x" * 128, "%", "CON"])
def test_a_topic_with_a_bad_name_is_left_out(name: str) -> None:
    table = RouteTable()
    assert register(table, "T1", topic(name)).topics_invalid == 1
    assert table.topics().topics == ("T1",)


def test_a_topic_with_absurd_queue_counts_is_left_out() -> None:
    table = RouteTable()
    assert register(table, "T1", topic("T2", 1 << 30)).topics_invalid == 1
    assert table.route("T2") is None


def test_the_limits_hold() -> None:
    table = RouteTable(RouteLimits(topics_max=3, routes_max=4, broker_names_max=2))
    assert register(table, "T1", "T2", "T3", "T4", "T5").topics_over_limit == 2
    other = identity("broker-b", address=SLAVE)
    assert register(table, "T1", "T2", who=other).topics_over_limit == 1
    assert table.topics().topics == ("T1", "T2", "T3")
    with pytest.raises(InvalidArgument, match="broker names"):
        register(table, "T1", "T2", who=identity("broker-c", address="10.0.0.3:10911"))
    table.unregister(identity())
    assert register(table, "T1", "T2", "T4", who=other, version=2).topics_over_limit == 0


def test_members_of_one_name_are_limited() -> None:
    table = RouteTable(RouteLimits(members_per_broker_max=2))
    for broker_id in range(2):
        register(table, who=identity(broker_id=broker_id, address=f"10.0.0.{broker_id + 1}:1"))
    with pytest.raises(InvalidArgument, match="members"):
        register(table, who=identity(broker_id=2, address="10.0.0.3:1"))


def test_wiped_write_permission_survives_heartbeats_and_can_be_added_again() -> None:
    table = RouteTable()
    register(table, "T1", topic("TBW102", perm=7))
    register(table, "T1", "T2", who=identity("broker-b", address=SLAVE))
    assert table.wipe_write_permission("broker-a") == 2
    register(table, "T1", topic("TBW102", perm=7))
    assert perm(table, "TBW102") == 5
    route = table.route("T1")
    assert route is not None
    assert [queues.perm for queues in route.queues] == [4, 6]
    assert table.add_write_permission("broker-a") == 2
    assert perm(table, "TBW102") == 6
    assert table.wipe_write_permission("unknown") == 0


def test_topics_are_deleted_everywhere_or_in_one_cluster() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    register(table, "T1", "T2", who=identity("broker-b", address=SLAVE, cluster="Other"))
    table.delete_topic("T1", "Other")
    route = table.route("T1")
    assert route is not None
    assert [broker.broker_name for broker in route.brokers] == ["broker-a"]
    table.delete_topic("T1", "unknown")
    assert table.route("T1") is not None
    table.delete_topic("T2")
    table.delete_topic("unknown")
    assert table.topics().topics == ("T1",)


def test_one_topic_can_be_registered_by_itself() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    table.register_topic("T3", [QueueData("broker-a", 4, 4, 6), QueueData("stranger", 4, 4, 6)])
    assert perm(table, "T3") == 6
    with pytest.raises(InvalidArgument):
        table.register_topic("../x", [QueueData("broker-a", 4, 4, 6)])
    with pytest.raises(InvalidArgument):
        table.register_topic("T4", [QueueData("broker-a", 1 << 30, 4, 6)])


def test_listings() -> None:
    table = RouteTable()
    register(table, topic("T1", sys_flag=1), topic("T2", sys_flag=2), topic("T3", sys_flag=3))
    register(table, "T4", "T1", who=identity("broker-b", address=SLAVE, cluster="Other"))
    assert table.topics_of_cluster(CLUSTER).topics == ("T1", "T2", "T3")
    assert table.topics_of_cluster("Other").topics == ("T1", "T4")
    assert table.topics_of_cluster("unknown").topics == ()
    assert table.topics_with_flags(lambda flags: bool(flags & 1)).topics == ("T1", "T3")
    system = table.system_topics()
    assert system.topics == (CLUSTER, "Other", "broker-a", "broker-b")
    assert system.broker_address == MASTER
    info = table.cluster_info()
    assert info.clusters == {CLUSTER: ("broker-a",), "Other": ("broker-b",)}
    assert info.brokers["broker-b"].addresses == {0: SLAVE}
    assert RouteTable().system_topics().broker_address is None
