"""Members of groups: registration, expiry, subscriptions, notifications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.access.accounts import TRUSTED_PEER, Account
from broker_core.broker.tables.client_table import ClientTable
from broker_core.codec.wire.bodies.heartbeat_data import BROADCASTING, ConsumerData, HeartbeatData
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData, parse_tag_expression
from broker_core.errors import InvalidArgument, LimitReached, NoPermission
from tests.broker.broker_tables import OpenConnection
from tests.cost_growth import FACTOR, GROWTH_MAX, growth
from tests.fakes.manual_clock import ManualClock

EXPIRY_MS = 120_000


class Clients:
    """A client table, its notifications, and short forms of heartbeats."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.told: list[tuple[Any, str]] = []
        self.table = ClientTable(
            self.clock, EXPIRY_MS, lambda c, group: self.told.append((c, group)), **settings
        )

    def consume(
        self,
        connection: Any,
        client_id: str,
        group: str = "CG",
        *topics: str,
        version: int = 1,
        **fields: Any,
    ) -> set[str]:
        """One heartbeat of one group; topics may carry tags: `T:A || B`."""
        names = topics or ("T",)
        subscriptions = tuple(
            parse_tag_expression(topic.partition(":")[0], topic.partition(":")[2], version)
            for topic in names
        )
        consumer = ConsumerData(group, subscriptions=subscriptions, **fields)
        return self.table.heartbeat(connection, HeartbeatData(client_id, (), (consumer,)), 0, 409)

    def produce(self, connection: Any, client_id: str, *groups: str) -> set[str]:
        return self.table.heartbeat(connection, HeartbeatData(client_id, groups), 0, 409)

    def notices(self) -> list[tuple[Any, str]]:
        told = list(self.told)
        self.told.clear()
        return told


@pytest.fixture
def clients() -> Clients:
    return Clients()


A, B, C = "10.0.0.9@1", "10.0.0.9@2", "10.0.0.9@3"


class TestMembership:
    def test_all_members_are_notified_when_one_joins(self, clients: Clients) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        assert clients.consume(a, A) == {"CG"}
        assert clients.notices() == [(a, "CG")]
        assert clients.consume(b, B) == {"CG"}
        assert clients.notices() == [(a, "CG"), (b, "CG")]
        assert clients.table.consumer_ids("CG") == [A, B]

    def test_a_heartbeat_that_changes_nothing_notifies_no_member(self, clients: Clients) -> None:
        a = OpenConnection()
        clients.consume(a, A)
        clients.notices()
        for _ in range(3):
            assert clients.consume(a, A) == set()
        assert clients.notices() == []
        assert len(a.callbacks) == 1

    def test_the_remaining_members_are_notified_when_one_leaves(self, clients: Clients) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        clients.consume(a, A)
        clients.consume(b, B)
        clients.notices()
        assert clients.table.unregister(b, consumer_group="CG") == {"CG"}
        assert clients.notices() == [(a, "CG")]
        assert clients.table.consumer_ids("CG") == [A]
        assert clients.table.unregister(b, consumer_group="CG") == set()
        assert clients.table.unregister(a, consumer_group="CG") == {"CG"}
        assert clients.table.consumers("CG") is None
        assert clients.notices() == []

    def test_a_closed_connection_leaves_all_groups_at_once(self, clients: Clients) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        for group in ("CG", "CG2"):
            clients.consume(a, A, group)
            clients.consume(b, B, group)
        clients.produce(b, B, "PG")
        clients.notices()
        b.end()
        assert clients.notices() == [(a, "CG"), (a, "CG2")]
        assert clients.table.consumer_ids("CG2") == [A]
        assert clients.table.producers("PG") == []
        assert clients.table.producer_by_client_id(B) is None

    def test_a_reconnected_client_is_listed_once(self, clients: Clients) -> None:
        old, new = OpenConnection(1), OpenConnection(2)
        clients.consume(old, A)
        clients.consume(new, A)
        assert clients.table.consumer_ids("CG") == [A]
        assert clients.table.consumer_connection("CG", A) is old
        old.end()
        assert clients.table.consumer_connection("CG", A) is new
        assert clients.table.consumer_ids("CG") == [A]

    def test_a_heartbeat_on_a_closed_connection_registers_no_client(self, clients: Clients) -> None:
        a = OpenConnection()
        a.end()
        assert clients.consume(a, A) == set()
        assert clients.table.consumers("CG") is None

    def test_a_connection_may_change_its_client_id(self, clients: Clients) -> None:
        a = OpenConnection()
        clients.produce(a, A, "PG")
        clients.produce(a, B, "PG")
        assert clients.table.producer_by_client_id(A) is None
        assert clients.table.producer_by_client_id(B) is a

    def test_coming_and_going_leaves_nothing_behind(self, clients: Clients) -> None:
        a = OpenConnection()
        for _ in range(100):
            clients.consume(a, A)
            clients.produce(a, A, "PG")
            clients.table.unregister(a, consumer_group="CG", producer_group="PG")
        assert len(a.callbacks) == 1
        assert clients.table.consumer_groups() == clients.table.producer_groups() == []
        clients.consume(a, A)
        a.end()
        assert clients.table.consumer_groups() == [], "also after it came again"

    def test_what_tools_see(self, clients: Clients) -> None:
        a = OpenConnection()
        consumer = ConsumerData("CG", "CONSUME_ACTIVELY", BROADCASTING, "CONSUME_FROM_TIMESTAMP")
        clients.clock.set_wall(77)
        clients.table.heartbeat(a, HeartbeatData(A, (), (consumer,)), 9, 401)
        group = clients.table.consumers("CG")
        assert group is not None
        assert (group.consume_type, group.message_model) == ("CONSUME_ACTIVELY", BROADCASTING)
        assert group.consume_from_where == "CONSUME_FROM_TIMESTAMP"
        (member,) = group.members.values()
        assert (member.client_id, member.language, member.version) == (A, 9, 401)
        assert member.seen_wall_ms == 77


class TestProducers:
    def test_they_are_found_by_group_and_by_id(self, clients: Clients) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        clients.produce(a, A, "PG", "CLIENT_INNER_PRODUCER")
        clients.produce(b, B, "PG")
        assert [m.connection for m in clients.table.producers("PG")] == [a, b]
        assert clients.table.producer_by_client_id(A) is a
        assert [member.client_id for member in clients.table.producers("PG")] == [A, B]
        assert clients.table.producer_groups() == ["CLIENT_INNER_PRODUCER", "PG"]
        clients.table.unregister(a, producer_group="PG")
        assert [m.connection for m in clients.table.producers("PG")] == [b]
        assert clients.table.producer_by_client_id(A) is a, "its inner producer is still there"
        assert [m.connection for m in clients.table.producers("none")] == []
        assert clients.notices() == [], "producers share nothing"

    def test_the_owner_of_an_id_keeps_it_while_it_is_there(self, clients: Clients) -> None:
        old, new = OpenConnection(1), OpenConnection(2)
        clients.produce(old, A, "PG")
        clients.produce(new, A, "PG")
        assert clients.table.producer_by_client_id(A) is old
        old.end()
        assert clients.table.producer_by_client_id(A) is new
        clients.produce(old := OpenConnection(3), A, "PG")
        new.end()
        assert clients.table.producer_by_client_id(A) is old

    def test_an_owner_that_is_silent_loses_its_id(self, clients: Clients) -> None:
        old, new = OpenConnection(1), OpenConnection(2)
        clients.produce(old, A, "PG")
        clients.clock.advance(EXPIRY_MS / 2 - 1)
        clients.produce(new, A, "PG")
        assert clients.table.producer_by_client_id(A) is old
        clients.clock.advance(1)
        clients.produce(new, A, "PG")
        assert clients.table.producer_by_client_id(A) is new
        clients.produce(old, A, "PG")
        assert clients.table.producer_by_client_id(A) is new

    def test_a_client_that_only_consumes_does_not_hide_a_producer(self, clients: Clients) -> None:
        """Clients of two containers may have the same id."""
        consumer, producer = OpenConnection(1), OpenConnection(2)
        clients.consume(consumer, A)
        clients.produce(producer, A, "PG")
        assert clients.table.producer_by_client_id(A) is producer
        clients.produce(consumer, A, "PG")
        assert clients.table.producer_by_client_id(A) is consumer

    def test_a_consumer_alone_is_no_producer(self, clients: Clients) -> None:
        clients.consume(OpenConnection(), A)
        assert clients.table.producer_by_client_id(A) is None


class TestSubscriptions:
    def test_the_newest_version_counts(self, clients: Clients) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        clients.consume(a, A, "CG", "T:old", version=5)
        clients.consume(b, B, "CG", "T:older", version=4)
        assert _text(clients, "T") == "old"
        clients.consume(b, B, "CG", "T:newer", version=6)
        assert _text(clients, "T") == "newer"
        clients.consume(a, A, "CG", "T:old", version=5)
        assert _text(clients, "T") == "newer"

    def test_a_new_version_of_the_same_topics_is_no_change(self, clients: Clients) -> None:
        a = OpenConnection()
        clients.consume(a, A, "CG", "T:x", version=1)
        clients.notices()
        assert clients.consume(a, A, "CG", "T:y", version=2) == set()
        assert _text(clients, "T") == "y"

    def test_added_and_removed_topics_are_notified(self, clients: Clients) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        clients.consume(a, A, "CG", "T")
        clients.consume(b, B, "CG", "T")
        clients.notices()
        assert clients.consume(a, A, "CG", "T", "U") == {"CG"}
        assert clients.notices() == [(a, "CG"), (b, "CG")]
        assert clients.consume(a, A, "CG", "T") == {"CG"}
        assert clients.table.subscription("CG", "U") is None
        assert len(clients.notices()) == 2

    def test_members_with_different_lists_do_not_take_topics_from_each_other(
        self, clients: Clients
    ) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        clients.consume(a, A, "CG", "T")
        clients.consume(b, B, "CG", "U")
        clients.notices()
        for _ in range(3):
            clients.consume(a, A, "CG", "T")
            clients.consume(b, B, "CG", "U")
        assert clients.notices() == []
        assert clients.table.subscription("CG", "T") and clients.table.subscription("CG", "U")
        b.end()
        assert clients.table.subscription("CG", "U") is None
        assert clients.table.subscription("CG", "T")

    def test_when_the_newest_leaves_the_next_counts(self, clients: Clients) -> None:
        a, b, c = OpenConnection(1), OpenConnection(2), OpenConnection(3)
        clients.consume(a, A, "CG", "T:one", version=1)
        clients.consume(b, B, "CG", "T:two", version=2)
        clients.consume(c, C, "CG", "T:three", version=3)
        c.end()
        assert _text(clients, "T") == "two"
        a.end()
        assert _text(clients, "T") == "two"

    def test_the_cost_of_leaving_is_linear_in_the_topics(self, clients: Clients) -> None:
        def leaving(count: int) -> Callable[[], object]:
            group, topics = f"CG{count}", [f"T{number}" for number in range(count)]
            clients.consume(OpenConnection(1), A, group, *topics, version=1)
            leaver = OpenConnection(2)

            def run() -> None:
                clients.consume(leaver, B, group, *topics, version=2)
                clients.table.unregister(leaver, consumer_group=group)

            return run

        assert growth(leaving(128), leaving(128 * FACTOR)) < GROWTH_MAX

    def test_a_group_that_comes_back_starts_anew(self, clients: Clients) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        clients.consume(a, A, "CG", "T:new", version=9)
        a.end()
        clients.consume(b, B, "CG", "T:old", version=1)
        assert _text(clients, "T") == "old"

    def test_a_heartbeat_without_subscriptions_keeps_them(self, clients: Clients) -> None:
        a = OpenConnection()
        clients.consume(a, A, "CG", "T")
        clients.notices()
        short = HeartbeatData(A, (), (ConsumerData("CG"),), 5, without_sub=True)
        assert clients.table.heartbeat(a, short, 0, 0) == set()
        assert clients.table.subscription("CG", "T") is not None
        full = HeartbeatData(A, (), (ConsumerData("CG"),), 5)
        assert clients.table.heartbeat(a, full, 0, 0) == {"CG"}
        assert clients.table.subscription("CG", "T") is None

    def test_who_subscribes(self, clients: Clients) -> None:
        clients.consume(OpenConnection(), A, "g1", "T", "U")
        clients.consume(OpenConnection(), B, "g2", "T")
        assert clients.table.groups_of("T") == {"g1", "g2"}
        assert clients.table.groups_of("U") == {"g1"}
        assert clients.table.groups_of("V") == set()
        assert clients.table.consumer_groups() == ["g1", "g2"]
        assert clients.table.subscription("g2", "U") is None
        assert clients.table.subscription("none", "T") is None


class TestExpiry:
    def test_after_too_long_a_silence(self, clients: Clients) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        clients.consume(a, A)
        clients.consume(b, B)
        clients.produce(b, B, "PG")
        clients.clock.advance(EXPIRY_MS - 1)
        clients.notices()
        clients.consume(a, A)
        assert clients.table.expire() == set()
        clients.clock.advance(1)
        assert clients.table.expire() == {"CG"}
        assert clients.notices() == [(a, "CG")]
        assert (a.is_closed, b.is_closed) == (False, True)
        assert b.close_reason == "no heartbeat"
        assert clients.table.producers("PG") == []

    def test_a_group_that_is_not_mentioned_any_more_goes_alone(self, clients: Clients) -> None:
        a = OpenConnection()
        clients.consume(a, A, "g1")
        clients.consume(a, A, "g2")
        clients.clock.advance(EXPIRY_MS)
        clients.consume(a, A, "g1")
        clients.notices()
        assert clients.table.expire() == {"g2"}
        assert not a.is_closed
        assert clients.table.consumer_groups() == ["g1"]

    def test_the_wall_clock_does_not_matter(self, clients: Clients) -> None:
        a = OpenConnection()
        clients.consume(a, A)
        clients.clock.set_wall(5)
        assert clients.table.expire() == set()
        clients.clock.set_wall(1 << 50)
        assert clients.table.expire() == set()

    def test_an_empty_heartbeat_is_no_member(self, clients: Clients) -> None:
        a = OpenConnection()
        clients.table.heartbeat(a, HeartbeatData(A), 0, 0)
        clients.clock.advance(EXPIRY_MS * 2)
        clients.table.expire()
        assert not a.is_closed


class TestTogether:
    def test_changes_of_one_turn_are_notified_once(self) -> None:
        later: list[Any] = []
        clients = Clients(defer=later.append)
        connections = [OpenConnection(port) for port in range(10)]
        for connection in connections:
            clients.consume(connection, f"c{connection.peer[1]}")
        assert clients.notices() == []
        (tell,) = later
        tell()
        assert clients.notices() == [(connection, "CG") for connection in connections]
        later.clear()
        for connection in connections[1:]:
            connection.end()
        assert len(later) == 1
        later.pop()()
        assert clients.notices() == [(connections[0], "CG")]


class TestRefusals:
    @pytest.mark.parametrize(
        "heartbeat",
        [
            HeartbeatData(""),
            HeartbeatData("a\nb"),
            HeartbeatData("a\0"),
            HeartbeatData("x" * 256),
            HeartbeatData(A, ("../x",)),
            HeartbeatData(A, ("",)),
            HeartbeatData(A, ("g" * 121,)),
            HeartbeatData(A, ("ok",), (ConsumerData("a/b"),)),
            HeartbeatData(
                A, ("ok",), (ConsumerData("g", subscriptions=(SubscriptionData(".."),)),)
            ),
            HeartbeatData(A, ("ok",), (ConsumerData("ok"), ConsumerData("NUL"))),
        ],
    )
    def test_bad_names_change_nothing(self, clients: Clients, heartbeat: HeartbeatData) -> None:
        with pytest.raises(InvalidArgument):
            clients.table.heartbeat(OpenConnection(), heartbeat, 0, 0)
        assert clients.table.consumer_groups() == clients.table.producer_groups() == []

    def test_names_of_real_clients_are_accepted(self, clients: Clients) -> None:
        clients.consume(OpenConnection(), "10.0.0.9@my app@unit#1", "ns%CG", "%RETRY%ns%CG", "a|b")
        assert clients.table.consumer_ids("ns%CG") == ["10.0.0.9@my app@unit#1"]

    def test_a_full_group(self) -> None:
        clients = Clients(consumers_per_group_max=2)
        a, b, c = OpenConnection(1), OpenConnection(2), OpenConnection(3)
        clients.consume(a, A)
        clients.consume(b, B)
        both = HeartbeatData(C, ("PG",), (ConsumerData("CG"), ConsumerData("other")))
        with pytest.raises(LimitReached, match="consumersPerGroupMax"):
            clients.table.heartbeat(c, both, 0, 0)
        assert clients.table.consumer_ids("CG") == [A, B]
        assert clients.table.consumer_ids("other") == [C], "what fits is registered"
        assert [m.connection for m in clients.table.producers("PG")] == [c]
        clients.consume(a, A)
        a.end()
        clients.table.heartbeat(c, both, 0, 0)
        assert clients.table.consumer_ids("CG") == [B, C]

    def test_a_client_that_a_full_group_refused_leaves_no_entry(self) -> None:
        clients = Clients(consumers_per_group_max=1)
        clients.consume(OpenConnection(1), A)
        visitor = OpenConnection(2)
        with pytest.raises(LimitReached):
            clients.consume(visitor, B)
        clients.clock.advance(EXPIRY_MS * 2)
        clients.table.expire()
        assert not visitor.is_closed

    def test_other_limits(self) -> None:
        clients = Clients(producer_groups_max=2, groups_per_client_max=3, topics_per_consumer_max=1)
        a = OpenConnection()
        with pytest.raises(LimitReached, match="producer groups"):
            clients.produce(a, A, "p1", "p2", "p3")
        assert clients.table.producer_groups() == ["p1", "p2"]
        clients.produce(a, A, "p1")
        with pytest.raises(LimitReached, match="4 groups"):
            clients.produce(a, A, "p1", "p2", "p3", "p4")
        with pytest.raises(LimitReached, match="2 topics"):
            clients.consume(a, A, "CG", "T", "U")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["beat", "beat", "beat", "end", "leave", "wait"]),
        st.integers(0, 3),
        st.sampled_from(["g1", "g2"]),
        st.sets(st.sampled_from(["T", "U", "V"]), min_size=1),
        st.integers(1, 5),
    ),
    max_size=40,
)


@given(STEPS)
def test_any_history_agrees_with_a_plain_model(steps: list[Any]) -> None:
    """The model keeps what each live connection said last and computes everything from that."""
    clients = Clients()
    connections = [OpenConnection(port) for port in range(4)]
    said: dict[tuple[int, str], tuple[float, tuple[SubscriptionData, ...]]] = {}
    for kind, number, group, topics, version in steps:
        connection = connections[number]
        if kind == "beat":
            clients.consume(connection, f"c{number}", group, *sorted(topics), version=version)
            member = clients.table.consumers(group)
            assert member is not None
            said[number, group] = (
                clients.clock.monotonic(),
                member.members[connection].subscriptions,
            )
        elif kind == "leave":
            clients.table.unregister(connection, consumer_group=group)
            said.pop((number, group), None)
        elif kind == "end":
            connection.end()
            connections[number] = OpenConnection(number)
            said = {key: value for key, value in said.items() if key[0] != number}
        else:
            clients.clock.advance(EXPIRY_MS / 2)
            clients.table.expire()
            limit = clients.clock.monotonic() - EXPIRY_MS / 1000
            said = {key: value for key, value in said.items() if value[0] > limit}
            for position, each in enumerate(connections):
                if each.is_closed:
                    connections[position] = OpenConnection(position)
        for name in ("g1", "g2"):
            _agree(clients, name, [(n, subs) for (n, g), (_, subs) in said.items() if g == name])


def _agree(clients: Clients, group: str, members: list[Any]) -> None:
    assert clients.table.consumer_ids(group) == sorted(f"c{number}" for number, _ in members)
    for topic in ("T", "U", "V"):
        listed = [s.version for _, subs in members for s in subs if s.topic == topic]
        found = clients.table.subscription(group, topic)
        assert (found is None) == (not listed)
        assert found is None or found.version == max(listed)


def _text(clients: Clients, topic: str) -> str:
    found = clients.table.subscription("CG", topic)
    assert found is not None
    return found.sub_string


class TestAccounts:
    ONE, OTHER = Account("one"), Account("other")

    def beat(self, clients: Clients, connection: Any, account: Account | None) -> None:
        clients.table.heartbeat(connection, HeartbeatData(A, ("PG",)), 0, 409, account)

    def test_the_id_of_another_account_is_refused(self, clients: Clients) -> None:
        owner, thief = OpenConnection(1), OpenConnection(2)
        self.beat(clients, owner, self.ONE)
        with pytest.raises(NoPermission, match="another account"):
            self.beat(clients, thief, self.OTHER)
        assert clients.table.producer_by_client_id(A) is owner
        assert [m.connection for m in clients.table.producers("PG")] == [owner]
        owner.end()
        self.beat(clients, thief, self.OTHER)
        assert clients.table.producer_by_client_id(A) is thief

    def test_a_client_that_comes_back_has_its_id_at_once(self, clients: Clients) -> None:
        old, new, elsewhere = (OpenConnection(port) for port in (1, 2, 3))
        elsewhere.peer = ("10.0.0.8", 3)
        self.beat(clients, old, self.ONE)
        self.beat(clients, elsewhere, self.ONE)
        assert clients.table.producer_by_client_id(A) is old, "from another host it waits"
        # Accounts that were read again are other objects.
        self.beat(clients, new, Account("one", default_topic=1))
        assert clients.table.producer_by_client_id(A) is new

    def test_a_white_list_is_no_account(self, clients: Clients) -> None:
        old, new = OpenConnection(1), OpenConnection(2)
        self.beat(clients, old, TRUSTED_PEER)
        self.beat(clients, new, TRUSTED_PEER)
        assert clients.table.producer_by_client_id(A) is old
        with pytest.raises(NoPermission):
            self.beat(clients, new, Account(TRUSTED_PEER.access_key))


class TestBytes:
    LONG = "T:" + " || ".join(f"tag-{number}" for number in range(500))

    def test_one_client(self) -> None:
        clients = Clients(client_size_max=100_000)
        a = OpenConnection()
        clients.consume(a, A, "CG", self.LONG)
        with pytest.raises(LimitReached, match="of one client take"):
            clients.consume(a, A, "CG", *(f"T{at}{self.LONG[1:]}" for at in range(10)))
        group = clients.table.consumers("CG")
        assert group is not None
        assert list(group.subscriptions) == ["T"], "as before"

    def test_all_clients(self) -> None:
        clients = Clients(size_max=300_000)
        connections = [OpenConnection(port) for port in range(50)]
        taken = 0
        for port, connection in enumerate(connections):
            try:
                clients.consume(connection, f"{port}", "CG", self.LONG)
                taken += 1
            except LimitReached:
                break
        assert 1 < taken < 10
        assert 0 < clients.table.size <= 300_000
        # Others are not kept out.
        clients.consume(connections[20], "20", "CG", "T:A || B")
        # Those that are here go on, and may say less.
        clients.consume(connections[0], "0", "CG", self.LONG)
        clients.consume(connections[0], "0", "CG", "T")
        clients.consume(connections[taken], "again", "CG", self.LONG)
        for connection in connections:
            connection.end()
        assert clients.table.size == 0
