"""Which clients are connected, in which groups, and what their groups subscribe to.

In memory only, owned by the event loop. A member is one connection in one group: it comes with a
heartbeat and goes when it unregisters, when its connection ends, or when no heartbeat came for
`expiry_ms`. Whenever a consumer group gains or loses a member or a topic, all its members are told
at once, so that they share the queues anew.

The subscription of a group to a topic is the newest that any member brought, and stays as long as
one member lists the topic. RocketMQ drops a topic as soon as any member leaves it out, so that
members with different lists take each other's subscriptions away with every heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from broker_core.broker.request_fields import checked_group, checked_topic
from broker_core.codec.heartbeat_data import ConsumerData, HeartbeatData
from broker_core.codec.subscription_data import SubscriptionData
from broker_core.errors import InvalidArgument, LimitReached
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)

CLIENT_ID_SIZE_MAX: Final = 255

# Tells one member that its group changed.
Notify = Callable[[Connection, str], None]
# Runs a function a moment later, as `loop.call_soon` does.
Defer = Callable[[Callable[[], None]], object]

# Key of `Connection.attributes`: the end of this connection is watched.
_WATCHED: Final = "broker.clients"


class Member:
    """One connection in one group."""

    __slots__ = ("client_id", "connection", "language", "seen_at", "seen_wall_ms", "subscriptions",
                 "version")  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.client_id = ""
        self.language = 0
        self.version = 0
        self.seen_at = 0.0
        self.seen_wall_ms = 0
        # What this member itself subscribes to; consumers only.
        self.subscriptions: tuple[SubscriptionData, ...] = ()


class ConsumerGroup:
    """The live members of a consumer group. To be read, never changed, outside this file."""

    __slots__ = ("consume_from_where", "consume_type", "members", "message_model", "name",
                 "subscriptions")  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Connection, Member] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.consume_type = ""
        self.message_model = ""
        self.consume_from_where = ""


class _Client:
    """The groups of one connection."""

    __slots__ = ("client_id", "consumers", "producers")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.consumers: set[str] = set()
        self.producers: set[str] = set()


class ClientTable:
    """Producers and consumers by group and by connection.

    With `defer`, changes of one turn of the loop are told together: when a host with a thousand
    members goes, each of the others gets one notice and not a thousand.
    """

    def __init__(
        self,
        clock: Clock,
        expiry_ms: float,
        notify: Notify,
        *,
        defer: Defer | None = None,
        consumers_per_group_max: int = 10_000,
        producer_groups_max: int = 50_000,
        groups_per_client_max: int = 4_096,
        topics_per_consumer_max: int = 4_096,
    ) -> None:
        self._clock = clock
        self._expiry_s = expiry_ms / 1000
        self._notify = notify
        self._defer = defer
        self._untold: set[str] = set()
        self._consumers_per_group_max = consumers_per_group_max
        self._producer_groups_max = producer_groups_max
        self._groups_per_client_max = groups_per_client_max
        self._topics_per_consumer_max = topics_per_consumer_max
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, Member]] = {}
        self._clients: dict[Connection, _Client] = {}
        # Client id -> its connections; more than one after a reconnection.
        self._connections: dict[str, dict[Connection, None]] = {}

    # Hot path

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What a group with live members wants from a topic."""
        found = self._consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    # Asking

    def consumers(self, group: str) -> ConsumerGroup | None:
        """A consumer group with at least one live member."""
        return self._consumers.get(group)

    def consumer_ids(self, group: str) -> list[str]:
        """Client ids of a group, each once, sorted; empty when nobody is there."""
        found = self._consumers.get(group)
        return [] if found is None else sorted({m.client_id for m in found.members.values()})

    def consumer_connection(self, group: str, client_id: str) -> Connection | None:
        """Where a member of a consumer group can be reached."""
        found = self._consumers.get(group)
        for member in reversed(found.members.values()) if found is not None else ():
            if member.client_id == client_id:
                return member.connection
        return None

    def consumer_groups(self) -> list[str]:
        """Every consumer group with a live member, sorted."""
        return sorted(self._consumers)

    def groups_of(self, topic: str) -> set[str]:
        """The groups with live members that subscribe to a topic."""
        return {name for name, group in self._consumers.items() if topic in group.subscriptions}

    def producer_groups(self) -> list[str]:
        """Every producer group with a live member, sorted."""
        return sorted(self._producers)

    def producers(self, group: str) -> list[Member]:
        """The live members of a producer group."""
        return list(self._producers.get(group, {}).values())

    def producer_connections(self, group: str) -> list[Connection]:
        """Where the members of a producer group can be reached."""
        return list(self._producers.get(group, ()))

    def producer_by_client_id(self, client_id: str) -> Connection | None:
        """Where a producer can be reached; its newest connection when it has several."""
        for connection in reversed(self._connections.get(client_id, {})):
            if self._clients[connection].producers:
                return connection
        return None

    # Coming

    def check(self, heartbeat: HeartbeatData) -> None:
        """Refuse a heartbeat whose names cannot be used; nothing was changed then."""
        client_id = heartbeat.client_id
        if not 0 < len(client_id) <= CLIENT_ID_SIZE_MAX or not client_id.isprintable():
            raise InvalidArgument(
                f"clientID {client_id[:60]!r} must be 1 to {CLIENT_ID_SIZE_MAX} "
                "printable characters"
            )
        groups = len(heartbeat.consumers) + len(heartbeat.producers)
        if groups > self._groups_per_client_max:
            raise LimitReached(
                f"{groups} groups in one heartbeat, at most {self._groups_per_client_max}"
            )
        for group in heartbeat.producers:
            checked_group(group)
        for consumer in heartbeat.consumers:
            checked_group(consumer.group)
            if len(consumer.subscriptions) > self._topics_per_consumer_max:
                raise LimitReached(
                    f"group {consumer.group} subscribes to {len(consumer.subscriptions)} topics, "
                    f"at most {self._topics_per_consumer_max}"
                )
            for subscription in consumer.subscriptions:
                checked_topic(subscription.topic)

    def heartbeat(
        self, connection: Connection, heartbeat: HeartbeatData, language: int, version: int
    ) -> set[str]:
        """Register or refresh; returns the consumer groups that changed, whose members were told.

        Raises `LimitReached` after everything that fits was registered.
        """
        self.check(heartbeat)
        if connection.is_closed:
            return set()
        client = self._client(connection, heartbeat.client_id)
        changed: set[str] = set()
        refused: list[str] = []
        for consumer in heartbeat.consumers:
            found = self._consumer_member(connection, consumer.group)
            if found is None:
                refused.append(
                    f"consumer group {consumer.group} has {self._consumers_per_group_max} members, "
                    "no more are allowed (consumersPerGroupMax)"
                )
                continue
            group, member, is_new = found
            self._seen(member, heartbeat.client_id, language, version)
            if self._take(group, member, consumer, heartbeat.without_sub) or is_new:
                changed.add(consumer.group)
        for name in heartbeat.producers:
            producer = self._producer_member(connection, name)
            if producer is None:
                refused.append(f"{len(self._producers)} producer groups, no more are allowed")
            else:
                self._seen(producer, heartbeat.client_id, language, version)
        self._forget_if_idle(connection, client)
        self._tell(changed)
        if refused:
            raise LimitReached(refused[0])
        return changed

    # Going

    def unregister(
        self, connection: Connection, *, producer_group: str = "", consumer_group: str = ""
    ) -> set[str]:
        """Take a connection out of these groups; returns the consumer group if it changed."""
        changed: set[str] = set()
        client = self._clients.get(connection)
        if client is None:
            return changed
        if producer_group in client.producers:
            self._remove_producer(connection, client, producer_group)
        if consumer_group in client.consumers:
            self._remove_consumer(connection, client, consumer_group)
            changed.add(consumer_group)
        self._forget_if_idle(connection, client)
        self._tell(changed)
        return changed

    def connection_closed(self, connection: Connection) -> set[str]:
        """Take a connection out of all its groups; returns the consumer groups it was in."""
        client = self._clients.get(connection)
        if client is None:
            return set()
        changed = set(client.consumers)
        for group in changed:
            self._remove_consumer(connection, client, group)
        for group in list(client.producers):
            self._remove_producer(connection, client, group)
        self._forget_if_idle(connection, client)
        self._tell(changed)
        return changed

    def expire(self) -> set[str]:
        """Take out members without a heartbeat for too long; to be called every few seconds.

        Closes connections that are in no group any more. Returns the consumer groups that changed.
        """
        too_old = self._clock.monotonic() - self._expiry_s
        changed: set[str] = set()
        for connection, client in list(self._clients.items()):
            for group in list(client.consumers):
                if self._consumers[group].members[connection].seen_at <= too_old:
                    self._remove_consumer(connection, client, group)
                    changed.add(group)
            for group in list(client.producers):
                if self._producers[group][connection].seen_at <= too_old:
                    self._remove_producer(connection, client, group)
            if self._forget_if_idle(connection, client):
                _log.info("%s at %s sent no heartbeat", client.client_id, connection.peer_text)
                connection.close("no heartbeat")
        self._tell(changed)
        return changed

    # Inside

    def _client(self, connection: Connection, client_id: str) -> _Client:
        client = self._clients.get(connection)
        if client is None:
            self._clients[connection] = client = _Client(client_id)
            if _WATCHED not in connection.attributes:
                connection.attributes[_WATCHED] = True
                connection.on_close(self.connection_closed)
        elif client.client_id != client_id:
            self._forget_id(connection, client)
            client.client_id = client_id
        self._connections.setdefault(client_id, {})[connection] = None
        return client

    def _consumer_member(
        self, connection: Connection, name: str
    ) -> tuple[ConsumerGroup, Member, bool] | None:
        """The member, and whether it is new; None when the group is full."""
        group = self._consumers.get(name)
        if group is None:
            group = ConsumerGroup(name)
        member = group.members.get(connection)
        if member is not None:
            return group, member, False
        if len(group.members) >= self._consumers_per_group_max:
            return None
        self._consumers[name] = group
        group.members[connection] = member = Member(connection)
        self._clients[connection].consumers.add(name)
        return group, member, True

    def _producer_member(self, connection: Connection, name: str) -> Member | None:
        members = self._producers.get(name)
        if members is None:
            if len(self._producers) >= self._producer_groups_max:
                return None
            members = self._producers[name] = {}
        if connection not in members:
            members[connection] = Member(connection)
            self._clients[connection].producers.add(name)
        return members[connection]

    def _seen(self, member: Member, client_id: str, language: int, version: int) -> None:
        member.client_id = client_id
        member.language = language
        member.version = version
        member.seen_at = self._clock.monotonic()
        member.seen_wall_ms = self._clock.wall_ms()

    def _take(
        self, group: ConsumerGroup, member: Member, data: ConsumerData, without_sub: bool
    ) -> bool:
        """Merge what a member says about its group; returns whether a topic came or went."""
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        if without_sub or data.subscriptions == member.subscriptions:
            return False
        before = member.subscriptions
        member.subscriptions = data.subscriptions
        is_changed = False
        for subscription in data.subscriptions:
            known = group.subscriptions.get(subscription.topic)
            if known is None or subscription.version > known.version:
                group.subscriptions[subscription.topic] = subscription
                is_changed |= known is None
        return _settle(group, before) or is_changed

    def _remove_consumer(self, connection: Connection, client: _Client, name: str) -> None:
        client.consumers.discard(name)
        group = self._consumers[name]
        member = group.members.pop(connection)
        if group.members:
            _settle(group, member.subscriptions)
        else:
            del self._consumers[name]

    def _remove_producer(self, connection: Connection, client: _Client, name: str) -> None:
        client.producers.discard(name)
        members = self._producers[name]
        del members[connection]
        if not members:
            del self._producers[name]

    def _forget_if_idle(self, connection: Connection, client: _Client) -> bool:
        if client.consumers or client.producers:
            return False
        del self._clients[connection]
        self._forget_id(connection, client)
        return True

    def _forget_id(self, connection: Connection, client: _Client) -> None:
        connections = self._connections[client.client_id]
        connections.pop(connection, None)
        if not connections:
            del self._connections[client.client_id]

    def _tell(self, changed: set[str]) -> None:
        if not changed:
            return
        is_due = bool(self._untold)
        self._untold |= changed
        if self._defer is None:
            self._tell_all()
        elif not is_due:
            self._defer(self._tell_all)

    def _tell_all(self) -> None:
        changed, self._untold = self._untold, set()
        for name in sorted(changed):
            group = self._consumers.get(name)
            for connection in list(group.members) if group is not None else ():
                self._notify(connection, name)


def _settle(group: ConsumerGroup, before: Iterable[SubscriptionData]) -> bool:
    """Let the remaining members decide where a member that had `before` did.

    Returns whether a topic went because no member lists it any more.
    """
    is_changed = False
    for old in before:
        # Only the newest counts, so one that did not count leaves nothing to decide.
        if group.subscriptions.get(old.topic) != old:
            continue
        newest: SubscriptionData | None = None
        for member in group.members.values():
            for subscription in member.subscriptions:
                if subscription.topic == old.topic and (
                    newest is None or subscription.version > newest.version
                ):
                    newest = subscription
        if newest is None:
            del group.subscriptions[old.topic]
            is_changed = True
        else:
            group.subscriptions[old.topic] = newest
    return is_changed
