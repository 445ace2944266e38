"""Which clients are connected, in which groups, and what their groups subscribe to.

In memory only, owned by the event loop. A member is one connection in one group. A heartbeat adds
it; it is removed when it unregisters, when its connection ends, or after `expiry_ms` without a
heartbeat. When a consumer group gains or loses a member or a topic, all its members are notified so
that they rebalance.

The subscription of a group to a topic is the newest of any member, and stays as long as one member
lists the topic. RocketMQ drops a topic as soon as any member leaves it out, so that members with
different lists remove each other's subscriptions with every heartbeat.

Requests to a client id go to its owner: the connection that used the id first, while it is alive.
Other connections of the same account may use the id as well, because clients in separate containers
sometimes do. A client that reconnects with the same account from the same host owns its id at once.
Memory is limited in bytes, per client and in total.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import Final

from broker_core.access.accounts import TRUSTED_PEER, Account
from broker_core.broker.request_fields import checked_group, checked_topic
from broker_core.broker.tables.group_table import GroupTable
from broker_core.codec.wire.bodies.heartbeat_data import (
    CLIENT_ID_SIZE_MAX,
    ConsumerData,
    HeartbeatData,
)
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, LimitReached, NoPermission, RmqError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)

# Bytes that one client, and all together, may take in this table. Clients within the free share are
# not counted, so that large ones cannot keep the others out.
CLIENT_SIZE_MAX: Final = 4 << 20
CLIENTS_SIZE_MAX: Final = 128 << 20
FREE_SIZE: Final = 16 << 10
# Estimated bytes of a member, a subscription and a tag beside their texts.
_MEMBER_SIZE: Final = 500
_SUBSCRIPTION_SIZE: Final = 400
_TAG_SIZE: Final = 120

# Notifies one member that its group changed.
Notify = Callable[[Connection, str], None]
# Runs a function later, like `loop.call_soon`.
Defer = Callable[[Callable[[], None]], object]

# Key of `Connection.attributes`: `connection_closed` is registered.
_WATCHED: Final = "broker.clients"


class Member:
    """One connection in one group."""

    __slots__ = ("account", "client_id", "connection", "language", "seen_at", "seen_wall_ms",
                 "subscriptions", "version")  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # Account that signed its last heartbeat; None without accounts.
        self.account: Account | None = None
        self.client_id = ""
        self.language = 0
        self.version = 0
        self.seen_at = 0.0
        self.seen_wall_ms = 0
        # Its own subscriptions; consumers only.
        self.subscriptions: tuple[SubscriptionData, ...] = ()


class ConsumerGroup:
    """The live members of a consumer group. Read-only outside this file."""

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

    __slots__ = ("account", "client_id", "consumers", "producers", "seen_at", "size")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.account: Account | None = None
        self.consumers: set[str] = set()
        self.producers: set[str] = set()
        self.seen_at = 0.0
        # Bytes of its heartbeat.
        self.size = 0


class ClientTable:
    """Producers and consumers by group and by connection.

    With `defer`, the changes of one turn of the loop are coalesced: when a host with a thousand
    members disconnects, each other member gets one notice instead of a thousand.
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
        client_size_max: int = CLIENT_SIZE_MAX,
        size_max: int = CLIENTS_SIZE_MAX,
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
        self._client_size_max = client_size_max
        self._size_max = size_max
        # Bytes of the clients above the free share.
        self._size = 0
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, Member]] = {}
        self._clients: dict[Connection, _Client] = {}
        # Client id -> its connections; more than one after a reconnection.
        self._connections: dict[str, dict[Connection, None]] = {}
        self._owners: dict[str, Connection] = {}

    # Hot path

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The subscription of a group with live members to a topic."""
        found = self._consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    # Queries

    def consumers(self, group: str) -> ConsumerGroup | None:
        """A consumer group with at least one live member."""
        return self._consumers.get(group)

    def consumer_ids(self, group: str) -> list[str]:
        """Client ids of a group, each once, sorted; empty without a member."""
        found = self._consumers.get(group)
        return [] if found is None else sorted({m.client_id for m in found.members.values()})

    def consumer_connection(self, group: str, client_id: str) -> Connection | None:
        """Where a member of a consumer group can be reached."""
        owner = self._owners.get(client_id)
        found = self._consumers.get(group)
        if owner is None or found is None:
            return None
        if owner in found.members:
            return owner
        # Another client with the same id, in this group.
        ids = ((member.connection, member.client_id) for member in found.members.values())
        return next((connection for connection, known in ids if known == client_id), None)

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

    def producer_by_client_id(self, client_id: str) -> Connection | None:
        """Where a producer can be reached: the owner of the id, if it is one."""
        owner = self._owners.get(client_id)
        if owner is None or self._clients[owner].producers:
            return owner
        # The owner is no producer, so another client with the same id is meant.
        others = (c for c in self._connections[client_id] if self._clients[c].producers)
        return next(others, None)

    @property
    def size(self) -> int:
        """Bytes of the clients above the free share; see `FREE_SIZE`."""
        return self._size

    # Joining

    def check(self, heartbeat: HeartbeatData) -> None:
        """Raise for a heartbeat with invalid names, before anything changes."""
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
        self,
        connection: Connection,
        heartbeat: HeartbeatData,
        language: int,
        version: int,
        account: Account | None = None,
    ) -> set[str]:
        """Register or refresh. Returns the changed consumer groups; their members are notified.

        Raises `NoPermission` for the client id of another account and `LimitReached` for too many
        bytes, both before anything changes. Raises `LimitReached` also after registering everything
        that fits.
        """
        self.check(heartbeat)
        if connection.is_closed:
            return set()
        self.check_account(connection, heartbeat.client_id, account)
        size = self._checked_size(connection, heartbeat)
        client = self._client(connection, heartbeat.client_id, account)
        self._count(client, size)
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
            member.account = account
            self._seen(member, heartbeat.client_id, language, version)
            if self._take(group, member, consumer, heartbeat.without_sub) or is_new:
                changed.add(consumer.group)
        for name in heartbeat.producers:
            producer = self._producer_member(connection, name)
            if producer is None:
                refused.append(f"{len(self._producers)} producer groups, no more are allowed")
            else:
                producer.account = account
                self._seen(producer, heartbeat.client_id, language, version)
        self._forget_if_idle(connection, client)
        self._tell(changed)
        if refused:
            raise LimitReached(refused[0])
        return changed

    # Leaving

    def unregister(
        self, connection: Connection, *, producer_group: str = "", consumer_group: str = ""
    ) -> set[str]:
        """Remove a connection from these groups; returns the consumer group if it changed."""
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
        """Remove a connection from all its groups; returns the consumer groups it was in."""
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
        """Remove members whose heartbeats have expired; to be called every few seconds.

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

    def check_account(
        self, connection: Connection, client_id: str, account: Account | None
    ) -> None:
        """Raise `NoPermission` when a client of another account has this id."""
        owner = self._owner(client_id)
        if owner is None or owner is connection or account is None or account is TRUSTED_PEER:
            return
        if not _is_same(self._clients[owner].account, account):
            raise NoPermission(
                ResponseCode.NO_PERMISSION,
                f"clientID {client_id!r:.260} is in use by a client of another account: give this "
                "one another instance name",
            )

    def _owner(self, client_id: str) -> Connection | None:
        """The connection that an id belongs to, unless it has expired."""
        owner = self._owners.get(client_id)
        if owner is None or owner.is_closed:
            return None
        silent_s = self._clock.monotonic() - self._clients[owner].seen_at
        return owner if silent_s < self._expiry_s / 2 else None

    def _own(self, connection: Connection, client: _Client) -> None:
        """Make the connection the owner of its id, unless the id has another owner."""
        owner = self._owner(client.client_id)
        if owner is None or (
            owner.peer[0] == connection.peer[0]
            and client.account is not None
            and client.account is not TRUSTED_PEER
            and _is_same(self._clients[owner].account, client.account)
        ):
            self._owners[client.client_id] = connection

    def _checked_size(self, connection: Connection, heartbeat: HeartbeatData) -> int:
        """Bytes of a client after this heartbeat."""
        size = _size_of(heartbeat)
        known = self._clients.get(connection)
        before = known.size if known is not None else 0
        if heartbeat.without_sub:
            size = max(size, before)
        if size > self._client_size_max:
            raise LimitReached(
                f"the groups and subscriptions of one client take {size} bytes, at most "
                f"{self._client_size_max}: use fewer tags or several clients"
            )
        if _counted(size) > _counted(before) and (
            self._size - _counted(before) + _counted(size) > self._size_max
        ):
            raise LimitReached(
                f"the subscriptions of all clients take {self._size} bytes, at most "
                f"{self._size_max}: only clients of up to {FREE_SIZE} bytes are taken now, and "
                f"this one has {size}"
            )
        return size

    def _count(self, client: _Client, size: int) -> None:
        self._size += _counted(size) - _counted(client.size)
        client.size = size

    def _client(self, connection: Connection, client_id: str, account: Account | None) -> _Client:
        client = self._clients.get(connection)
        if client is None:
            self._clients[connection] = client = _Client(client_id)
            if _WATCHED not in connection.attributes:
                connection.attributes[_WATCHED] = True
                connection.on_close(self.connection_closed)
        elif client.client_id != client_id:
            self._forget_id(connection, client)
            client.client_id = client_id
        client.account = account
        client.seen_at = self._clock.monotonic()
        self._connections.setdefault(client_id, {})[connection] = None
        self._own(connection, client)
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
        """Merge a member's subscriptions into its group; returns whether its topics changed."""
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
        self._count(client, 0)
        self._forget_id(connection, client)
        del self._clients[connection]
        return True

    def _forget_id(self, connection: Connection, client: _Client) -> None:
        connections = self._connections[client.client_id]
        connections.pop(connection, None)
        if self._owners.get(client.client_id) is connection:
            # The next connection with the id, if there is one.
            del self._owners[client.client_id]
            for other in connections:
                self._owners[client.client_id] = other
                break
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


def _is_same(one: Account | None, other: Account | None) -> bool:
    """Whether two clients have the same account. An allow-listed address is none."""
    if one is None or other is None:
        return one is other
    return one.access_key == other.access_key and (one is TRUSTED_PEER) == (other is TRUSTED_PEER)


def _counted(size: int) -> int:
    return size if size > FREE_SIZE else 0


def _size_of(heartbeat: HeartbeatData) -> int:
    """Bytes that a heartbeat takes in this table."""
    size = _MEMBER_SIZE * (1 + len(heartbeat.producers) + len(heartbeat.consumers))
    size += sum(map(sys.getsizeof, heartbeat.producers))
    for consumer in heartbeat.consumers:
        size += sys.getsizeof(consumer.group)
        for subscription in consumer.subscriptions:
            size += _SUBSCRIPTION_SIZE
            size += sys.getsizeof(subscription.topic) + sys.getsizeof(subscription.sub_string)
            size += sum(map(sys.getsizeof, subscription.tags)) + _TAG_SIZE * len(subscription.tags)
    return size


def _settle(group: ConsumerGroup, before: Iterable[SubscriptionData]) -> bool:
    """Choose subscriptions again where those of a member, `before`, were the newest.

    Returns whether a topic was removed because no member lists it any more.
    """
    # Where it was not the newest, the choice stays.
    open_topics = {old.topic for old in before if group.subscriptions.get(old.topic) == old}
    newest: dict[str, SubscriptionData] = {}
    # One pass for all topics: a member may have thousands of them.
    for member in group.members.values() if open_topics else ():
        for subscription in member.subscriptions:
            topic = subscription.topic
            if topic in open_topics and (
                topic not in newest or subscription.version > newest[topic].version
            ):
                newest[topic] = subscription
    group.subscriptions.update(newest)
    for topic in open_topics - newest.keys():
        del group.subscriptions[topic]
    return len(newest) < len(open_topics)


class MemberNotice:
    """Sends NOTIFY_CONSUMER_IDS_CHANGED to members: the `notify` of a `ClientTable`.

    A lost notice only costs time: members rebalance every 20 seconds anyway.
    """

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups

    def __call__(self, connection: Connection, group: str) -> None:
        """Send the notice, unless the group disables it or the connection is congested."""
        config = self._groups.find(group)
        if (config is not None and not config.notify_on_change) or not connection.is_writable:
            return
        code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        try:
            connection.oneway(RemotingCommand(code, {"consumerGroup": group}))
        except RmqError as error:
            _log.info("%s was not notified that %s changed: %s", connection.peer_text, group, error)
