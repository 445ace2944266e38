"""Brokers leave by unregistering, by silence or with their connection; their topics go with
them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.nameserver.route_table import RouteTable
from tests.fakes.manual_clock import ManualClock
from tests.nameserver.registered_brokers import (
    CLUSTER,
    MASTER,
    SLAVE,
    addresses,
    identity,
    perm,
    register,
)


def now_ms(clock: ManualClock) -> float:
    return clock.monotonic() * 1_000


def test_the_last_member_takes_the_broker_and_its_topics_along() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    register(table, who=identity(broker_id=1, address=SLAVE))
    [gone] = table.unregister(identity())
    assert gone.identity == identity()
    assert addresses(table) == {1: SLAVE}
    assert table.route("T1") is not None, "slaves still serve reads"
    table.unregister(identity(broker_id=1, address=SLAVE))
    assert table.topics().topics == ()
    assert table.cluster_info() == ({}, {})


def test_an_unknown_broker_cannot_be_unregistered() -> None:
    table = RouteTable()
    register(table, "T1", "T2")
    assert table.unregister(identity(address=SLAVE)) == []
    assert table.unregister(identity("broker-b")) == []
    assert table.unregister(identity(cluster="Other")) == []
    assert addresses(table) == {0: MASTER}


def test_silence_longer_than_the_timeout_removes_a_broker() -> None:
    clock = ManualClock()
    table = RouteTable()
    register(table, "T1", "T2", now_ms=now_ms(clock), heartbeat_timeout_ms=10_000)
    clock.advance(10_000)
    clock.set_wall(0)
    assert table.expire(now_ms(clock)) == [], "exactly the timeout is not too late"
    clock.advance(1)
    [gone] = table.expire(now_ms(clock))
    assert (gone.identity.address, gone.connection) == (MASTER, "connection")
    assert table.route("T1") is None


def test_heartbeats_keep_a_broker() -> None:
    clock = ManualClock()
    table = RouteTable()
    register(table, "T1", "T2", now_ms=now_ms(clock))
    for _ in range(5):
        clock.advance(100_000)
        table.touch(identity(), now_ms(clock))
        table.touch(identity("unknown"), now_ms(clock))
        assert table.expire(now_ms(clock)) == []
    clock.advance(120_001)
    assert len(table.expire(now_ms(clock))) == 1


def test_each_member_has_its_own_timeout() -> None:
    table = RouteTable()
    register(table, "T1", "T2", heartbeat_timeout_ms=60_000)
    register(table, who=identity(broker_id=1, address=SLAVE), heartbeat_timeout_ms=5_000)
    table.expire(6_000)
    assert addresses(table) == {0: MASTER}


def test_a_closed_connection_removes_its_members_at_once() -> None:
    table = RouteTable()
    one, two = object(), object()
    register(table, "T1", "T2", connection=one)
    register(table, "T3", "T4", who=identity("broker-b", address=SLAVE), connection=one)
    register(table, "T1", "T5", who=identity("broker-c", address="10.0.0.3:1"), connection=two)
    assert {gone.identity.name for gone in table.connection_closed(one)} == {"broker-a", "broker-b"}
    assert table.topics().topics == ("T1", "T5")
    assert table.connection_closed(one) == []


def test_the_end_of_an_old_connection_does_not_remove_a_broker_that_is_back() -> None:
    table = RouteTable()
    register(table, "T1", "T2", connection="old")
    register(table, "T1", "T2", connection="new")
    assert table.connection_closed("old") == []
    assert addresses(table) == {0: MASTER}


def test_without_its_master_an_acting_group_is_read_only() -> None:
    table = RouteTable()
    register(table, "T1", "T2", enable_acting_master=True)
    slave = identity(broker_id=1, address=SLAVE)
    register(table, "T1", "T2", who=slave, enable_acting_master=True)
    assert perm(table, "T1") == 6
    table.unregister(identity())
    assert perm(table, "T1") == 4


NAMES = ("a", "b")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("register", "unregister", "close", "expire", "touch", "delete")),
        st.sampled_from(NAMES),
        st.integers(0, 2),
        st.integers(0, 3),
        st.lists(st.sampled_from(("T1", "T2", "T3")), unique=True, min_size=2),
    ),
    max_size=40,
)


@given(STEPS)
def test_tables_agree_after_any_history(steps: list[tuple[str, str, int, int, list[str]]]) -> None:
    table = RouteTable()
    for now, (step, name, broker_id, host, topics) in enumerate(steps):
        who = identity(name, broker_id, f"10.0.0.{host + 1}:1")
        if step == "register":
            register(table, *topics, who=who, connection=host, now_ms=now, heartbeat_timeout_ms=5)
        elif step == "unregister":
            table.unregister(who)
        elif step == "close":
            table.connection_closed(host)
        elif step == "expire":
            table.expire(now)
        elif step == "touch":
            table.touch(who, now)
        else:
            table.delete_topic(topics[0])
        check_agreement(table)
    for host in range(4):
        table.connection_closed(host)
    assert table.topics().topics == ()
    assert table._route_count == 0


def check_agreement(table: RouteTable) -> None:
    info = table.cluster_info()
    assert set(info.clusters.get(CLUSTER, ())) == info.brokers.keys()
    rows = 0
    for broker in info.brokers.values():
        members = list(broker.addresses.values())
        assert members
        assert len(set(members)) == len(members), "an address has one id"
    for topic in table.topics().topics:
        route = table.route(topic)
        assert route is not None
        rows += len(route.queues)
        assert {broker.broker_name for broker in route.brokers} <= info.brokers.keys()
        assert len(route.brokers) == len(route.queues) > 0
    assert rows == table._route_count
