"""Live brokers and their topics. Pure: never reads a clock, logs or touches a socket.

Owns broker name -> members and topic -> broker name -> queues; clusters are derived from them, so
no two tables can disagree. A member is alive while it registers or sends heartbeats within its
timeout and the connection it registered on is open; connections are opaque tokens compared by
identity. A topic is routed as long as one broker that holds it has a member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_core.codec.wire.bodies.route_data import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRoute,
)
from broker_core.codec.wire.bodies.topic_config import (
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
)
from broker_core.codec.wire.topic_name import topic_name_problem
from broker_core.errors import InvalidArgument, RemoteError
from broker_core.nameserver.broker_identity import BrokerIdentity
from broker_core.nameserver.broker_registration import BrokerRegistration
from broker_core.nameserver.settings import RouteLimits
from broker_core.protocol_codes import MASTER_ID, ResponseCode


class RegisterResult(NamedTuple):
    """What a registration did. The addresses are the master's and only set for slaves.

    `stale`: an address with a newer state has the id, so nothing was changed.
    """

    master_address: str | None = None
    ha_address: str | None = None
    stale: bool = False
    topics_invalid: int = 0
    topics_over_limit: int = 0


class RemovedMember(NamedTuple):
    """A member that is gone, and the connection it had registered on."""

    identity: BrokerIdentity
    connection: object


@dataclass(slots=True)
class _Member:
    address: str
    ha_address: str
    version: DataVersion
    heartbeat_timeout_ms: int
    seen_ms: float
    connection: object


@dataclass(slots=True)
class _Broker:
    cluster: str
    enable_acting_master: bool = False
    zone_name: str | None = None
    members: dict[int, _Member] = field(default_factory=dict)


class RouteTable:
    """The tables of one name server. `revision` grows when any route or listing changes."""

    def __init__(self, limits: RouteLimits | None = None) -> None:
        self._limits = limits or RouteLimits()
        self._brokers: dict[str, _Broker] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._route_count = 0
        self.revision = 0

    # Registration

    def register(
        self, registration: BrokerRegistration, connection: object, now_ms: float
    ) -> RegisterResult:
        """Merge a full or incremental registration; raises if it breaks a limit or a rule."""
        identity = registration.identity
        broker = self._brokers.get(identity.name)
        holder = broker.members.get(identity.broker_id) if broker is not None else None
        self._check_admission(registration, broker, holder)
        if broker is None:
            broker = self._brokers[identity.name] = _Broker(identity.cluster)
        self._forget_other_ids(broker, identity)
        if holder is not None and _is_newer(holder, registration):
            return RegisterResult(stale=True)
        known = holder if holder is not None and holder.address == identity.address else None
        self._describe(broker, registration)
        broker.members[identity.broker_id] = _Member(
            identity.address,
            registration.ha_address,
            registration.version,
            registration.heartbeat_timeout_ms,
            now_ms,
            connection,
        )
        if known is None:
            self.revision += 1
        invalid = over_limit = 0
        if self._may_set_topics(broker, registration):
            changed = known is None or known.version != registration.version
            invalid, over_limit = self._merge_topics(broker, registration, changed)
        master = broker.members.get(MASTER_ID)
        if identity.broker_id == MASTER_ID or master is None:
            return RegisterResult(topics_invalid=invalid, topics_over_limit=over_limit)
        return RegisterResult(master.address, master.ha_address, False, invalid, over_limit)

    def _check_admission(
        self, registration: BrokerRegistration, broker: _Broker | None, holder: _Member | None
    ) -> None:
        # A single topic is an incremental change, which needs the table that it changes.
        if holder is None and len(registration.topics) == 1:
            raise RemoteError.for_code(
                ResponseCode.SYSTEM_ERROR,
                "register broker failed: a first registration must carry the full topic table",
            )
        if broker is None:
            if len(self._brokers) >= self._limits.broker_names_max:
                raise InvalidArgument(f"more than {self._limits.broker_names_max} broker names")
            return
        if broker.cluster != registration.identity.cluster:
            raise InvalidArgument(
                f"broker {registration.identity.name} belongs to cluster {broker.cluster}"
            )
        if holder is None and len(broker.members) >= self._limits.members_per_broker_max:
            raise InvalidArgument(
                f"more than {self._limits.members_per_broker_max} members of one broker name"
            )

    def _forget_other_ids(self, broker: _Broker, identity: BrokerIdentity) -> None:
        # A slave that became master comes back with its address and another id.
        moved = [
            broker_id
            for broker_id, member in broker.members.items()
            if member.address == identity.address and broker_id != identity.broker_id
        ]
        for broker_id in moved:
            del broker.members[broker_id]
            self.revision += 1

    def _describe(self, broker: _Broker, registration: BrokerRegistration) -> None:
        described = (bool(registration.enable_acting_master), registration.zone_name)
        if described != (broker.enable_acting_master, broker.zone_name):
            broker.enable_acting_master, broker.zone_name = described
            self.revision += 1

    @staticmethod
    def _may_set_topics(broker: _Broker, registration: BrokerRegistration) -> bool:
        broker_id = registration.identity.broker_id
        if broker_id == MASTER_ID:
            return True
        # From 5.0 on the smallest id stands in for a missing master.
        return registration.enable_acting_master is not None and broker_id == min(broker.members)

    def _merge_topics(
        self, broker: _Broker, registration: BrokerRegistration, changed: bool
    ) -> tuple[int, int]:
        """Counts the topics left out: for their names or queue counts, and for the limits."""
        name = registration.identity.name
        acting = broker.enable_acting_master and registration.identity.broker_id != MASTER_ID
        invalid = over_limit = 0
        for topic in registration.topics:
            rows = self._topics.get(topic.name)
            if rows is not None and name in rows and not changed:
                continue
            if topic_name_problem(topic.name) is not None or self._has_too_many_queues(topic):
                invalid += 1
            elif not self._set_queues(topic.name, _queues_of(name, topic, acting)):
                over_limit += 1
        return invalid, over_limit

    def _has_too_many_queues(self, topic: TopicConfig) -> bool:
        count_max = self._limits.queues_per_topic_max
        return topic.read_queue_count > count_max or topic.write_queue_count > count_max

    def _set_queues(self, topic: str, queues: QueueData) -> bool:
        """False if a new row would break a limit."""
        rows = self._topics.get(topic)
        if rows is None or queues.broker_name not in rows:
            if self._route_count >= self._limits.routes_max:
                return False
            if rows is None:
                if len(self._topics) >= self._limits.topics_max:
                    return False
                rows = self._topics[topic] = {}
            self._route_count += 1
        elif rows[queues.broker_name] == queues:
            return True
        rows[queues.broker_name] = queues
        self.revision += 1
        return True

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Set the queues of one topic on brokers that are registered; others are left out."""
        problem = topic_name_problem(topic)
        if problem is not None:
            raise InvalidArgument(problem)
        for row in queues:
            count_max = self._limits.queues_per_topic_max
            if row.read_queue_count > count_max or row.write_queue_count > count_max:
                raise InvalidArgument(f"more than {count_max} queues")
            if row.broker_name in self._brokers and not self._set_queues(topic, row):
                raise InvalidArgument("the route table is full")

    # Heartbeats

    def touch(self, identity: BrokerIdentity, now_ms: float) -> None:
        """A heartbeat of a member; unknown ones are ignored."""
        member = self._member(identity)
        if member is not None:
            member.seen_ms = now_ms

    def refresh(self, identity: BrokerIdentity, connection: object, now_ms: float) -> bool:
        """A heartbeat on the member's own connection; False if the member or connection differs."""
        member = self._member(identity)
        if member is None or member.connection is not connection:
            return False
        member.seen_ms = now_ms
        return True

    def data_version(self, identity: BrokerIdentity) -> DataVersion | None:
        """The state that a member registered last, or None if it is unknown."""
        member = self._member(identity)
        return member.version if member is not None else None

    def _member(self, identity: BrokerIdentity) -> _Member | None:
        broker = self._brokers.get(identity.name)
        if broker is None or broker.cluster != identity.cluster:
            return None
        found = (m for m in broker.members.values() if m.address == identity.address)
        return next(found, None)

    # Removal

    def unregister(self, identity: BrokerIdentity) -> list[RemovedMember]:
        """Remove the member with this address, with any id."""
        gone = self._member(identity)
        return self._remove(lambda member: member is gone) if gone is not None else []

    def connection_closed(self, connection: object) -> list[RemovedMember]:
        """Remove the members that registered last on this connection."""
        return self._remove(lambda member: member.connection is connection)

    def expire(self, now_ms: float) -> list[RemovedMember]:
        """Remove the members that have been silent for longer than their timeout."""
        return self._remove(lambda m: now_ms - m.seen_ms > m.heartbeat_timeout_ms)

    def _remove(self, gone: Callable[[_Member], bool]) -> list[RemovedMember]:
        removed = [
            RemovedMember(
                BrokerIdentity(broker.cluster, name, broker_id, member.address), member.connection
            )
            for name, broker in self._brokers.items()
            for broker_id, member in broker.members.items()
            if gone(member)
        ]
        for identity, _ in removed:
            del self._brokers[identity.name].members[identity.broker_id]
        for name in {identity.name for identity, _ in removed}:
            self._after_loss(name, self._brokers[name])
        return removed

    def _after_loss(self, name: str, broker: _Broker) -> None:
        self.revision += 1
        if not broker.members:
            del self._brokers[name]
            for topic in self._topics_of(name):
                self._drop_row(topic, name)
        elif broker.enable_acting_master and MASTER_ID not in broker.members:
            # A slave that stands in serves reads only.
            self._change_perm(name, lambda perm: perm & ~PERM_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        for name in list(self._topics.get(topic, ())):
            if cluster is None or self._brokers[name].cluster == cluster:
                self._drop_row(topic, name)

    def _drop_row(self, topic: str, broker_name: str) -> None:
        rows = self._topics[topic]
        del rows[broker_name]
        self._route_count -= 1
        self.revision += 1
        if not rows:
            del self._topics[topic]

    # Permissions

    def wipe_write_permission(self, broker_name: str) -> int:
        """Make every topic of a broker read-only; how many topics it has."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Make every topic of a broker readable and writable; how many topics it has."""
        return self._change_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        topics = self._topics_of(broker_name)
        for topic in topics:
            rows = self._topics[topic]
            row = rows[broker_name]
            rows[broker_name] = row._replace(perm=change(row.perm))
        self.revision += 1
        return len(topics)

    # Answers

    def route(self, topic: str) -> TopicRoute | None:
        """The route of a topic, or None if no live broker holds it."""
        rows = self._topics.get(topic)
        if rows is None:
            return None
        names = sorted(rows)
        return TopicRoute(
            tuple(self._broker_data(name) for name in names), tuple(rows[name] for name in names)
        )

    def cluster_info(self) -> ClusterInfo:
        """Every live broker and every cluster."""
        brokers = {name: self._broker_data(name) for name in sorted(self._brokers)}
        return ClusterInfo(brokers, self._clusters())

    def member_group(self, cluster: str, broker_name: str) -> BrokerData:
        """The members of a broker name; none if it is unknown."""
        if broker_name not in self._brokers:
            return BrokerData(cluster, broker_name, {})
        return self._broker_data(broker_name)

    def topics(self) -> TopicList:
        """Every topic that has a route."""
        return TopicList(tuple(sorted(self._topics)))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """The topics that a cluster's brokers hold."""
        names = {name for name, broker in self._brokers.items() if broker.cluster == cluster}
        found = (topic for topic, rows in self._topics.items() if not names.isdisjoint(rows))
        return TopicList(tuple(sorted(found)))

    def system_topics(self) -> TopicList:
        """Cluster and broker names, and one broker that knows the remaining system topics."""
        names = dict.fromkeys([*self._clusters(), *sorted(self._brokers)])
        addresses = (broker.members[min(broker.members)].address for broker in self._sorted())
        return TopicList(tuple(names), next(addresses, None))

    def topics_with_flags(self, is_wanted: Callable[[int], bool]) -> TopicList:
        """The topics whose system flags are wanted; a topic's brokers agree on its flags."""
        found = (
            topic
            for topic, rows in self._topics.items()
            if is_wanted(next(iter(rows.values())).sys_flag)
        )
        return TopicList(tuple(sorted(found)))

    def _sorted(self) -> Iterator[_Broker]:
        return (self._brokers[name] for name in sorted(self._brokers))

    def _clusters(self) -> dict[str, tuple[str, ...]]:
        clusters: dict[str, list[str]] = {}
        for name in sorted(self._brokers):
            clusters.setdefault(self._brokers[name].cluster, []).append(name)
        return {cluster: tuple(clusters[cluster]) for cluster in sorted(clusters)}

    def _topics_of(self, broker_name: str) -> Sequence[str]:
        return [topic for topic, rows in self._topics.items() if broker_name in rows]

    def _broker_data(self, name: str) -> BrokerData:
        broker = self._brokers[name]
        addresses = {broker_id: broker.members[broker_id].address for broker_id in broker.members}
        return BrokerData(
            broker.cluster, name, addresses, broker.enable_acting_master, broker.zone_name
        )


def _is_newer(holder: _Member, registration: BrokerRegistration) -> bool:
    return (
        holder.address != registration.identity.address
        and holder.version.state_version > registration.version.state_version
    )


def _queues_of(broker_name: str, topic: TopicConfig, acting: bool) -> QueueData:
    perm = topic.perm & ~PERM_WRITE if acting else topic.perm
    return QueueData(
        broker_name, topic.read_queue_count, topic.write_queue_count, perm, topic.sys_flag
    )
