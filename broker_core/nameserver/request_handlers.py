"""Request codes -> calls of the tables. One method per code; bodies come from `codec.wire`.

Owns the cache of encoded routes and the current settings. Runs on the event loop and never waits. A
refusal is an exception that `remoting` turns into a response. Outcomes with response codes of their
own (no route, no value) are answered here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from broker_core.codec.json.dialect import parse_json
from broker_core.codec.wire.bodies.route_data import (
    TopicList,
    decode_topic_route,
    encode_cluster_info,
    encode_kv_table,
    encode_member_group,
    encode_topic_list,
    encode_topic_route,
)
from broker_core.codec.wire.bodies.topic_config import (
    UNIT_FLAG,
    UNIT_SUBSCRIPTION_FLAG,
    encode_data_version,
    parse_data_version,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RemoteError
from broker_core.nameserver.broker_identity import read_identity, required
from broker_core.nameserver.broker_registration import read_registration
from broker_core.nameserver.kv_config import ORDER_TOPIC_CONFIG, KvConfig
from broker_core.nameserver.route_table import RegisterResult, RouteTable
from broker_core.nameserver.settings import NameServerSettings, parse_properties
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)

# Key of `Connection.attributes`: the last registration of each broker address on the connection.
# Its presence also tells that the end of the connection is watched.
_REGISTERED = "nameserver.registered"

Handler = Callable[[Connection, RemotingCommand], RemotingCommand]


class _Registered(NamedTuple):
    """A registration that was merged, and the state of the table right after."""

    ext: dict[str, str]
    body_digest: bytes
    revision: int
    result: RegisterResult


class RequestHandlers:
    """Answers every name-server request from `table` and `kv`."""

    def __init__(
        self, table: RouteTable, kv: KvConfig, settings: NameServerSettings, clock: Clock
    ) -> None:
        self._table = table
        self._kv = kv
        self._settings = settings
        self._clock = clock
        self._routes: dict[str, bytes] = {}
        self._routes_revision = (0, 0, False)
        self._handlers: Mapping[int, Handler] = {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_namespace,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_subscription_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._foreign_unit_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_settings,
            RequestCode.GET_NAMESRV_CONFIG: self._get_settings,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
        }

    @property
    def codes(self) -> frozenset[int]:
        """Request codes that this name server handles."""
        return frozenset(self._handlers)

    def __call__(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """The answer to `command`; `remoting` drops it if the request was oneway."""
        handler = self._handlers.get(command.code)
        if handler is None:
            return command.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {command.code} not supported",
            )
        return handler(connection, command)

    # Clients

    def _route(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topic = required(command.ext, "topic")
        body = self._route_body(topic)
        if body is None:
            return command.reply(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic[:255]}",
            )
        return command.reply(body=body)

    def _route_body(self, topic: str) -> bytes | None:
        ordered = self._settings.order_message_enable
        revision = (self._table.revision, self._kv.revision, ordered)
        if revision != self._routes_revision:
            self._routes.clear()
            self._routes_revision = revision
        body = self._routes.get(topic)
        if body is None:
            route = self._table.route(topic)
            if route is None:
                return None
            if ordered:
                route = route._replace(order_topic_conf=self._kv.get(ORDER_TOPIC_CONFIG, topic))
            body = self._routes[topic] = encode_topic_route(route)
        return body

    # Brokers

    def _register_broker(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        identity = read_identity(command.ext)
        digest = blake2b(command.body, digest_size=16).digest()
        seen = self._registrations_of(connection)
        last = seen.get(identity.address)
        if (
            last is not None
            and (last.ext, last.body_digest) == (command.ext, digest)
            and last.revision == self._table.revision
            and self._table.refresh(identity, connection, self._now_ms())
        ):
            # A heartbeat: skip reading thousands of unchanged topics.
            return self._registered(command, last.result)
        registration = read_registration(command.ext, command.body, self._settings)
        is_new = self._table.data_version(identity) != registration.version
        result = self._table.register(registration, connection, self._now_ms())
        if is_new:
            _log_registration(identity.name, identity.address, result)
        if result.topics_over_limit:
            # The broker stays registered with the topics that fit; its log says what is missing.
            raise RemoteError.for_code(
                ResponseCode.SYSTEM_ERROR,
                f"{result.topics_over_limit} topics are over the name server's limit",
            )
        if not result.stale:
            # A peer that keeps changing its address must not fill the memory.
            if len(seen) >= self._settings.limits.members_per_broker_max:
                seen.clear()
            revision = self._table.revision
            seen[identity.address] = _Registered(command.ext, digest, revision, result)
        return self._registered(command, result)

    def _registered(self, command: RemotingCommand, result: RegisterResult) -> RemotingCommand:
        ext = {}
        if result.master_address is not None:
            ext["masterAddr"] = result.master_address
        if result.ha_address:
            ext["haServerAddr"] = result.ha_address
        order = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return command.reply(ext=ext, body=encode_kv_table(order) if order else b"")

    def _registrations_of(self, connection: Connection) -> dict[str, _Registered]:
        seen: dict[str, _Registered] | None = connection.attributes.get(_REGISTERED)
        if seen is None:
            seen = connection.attributes[_REGISTERED] = {}
            connection.on_close(self._connection_closed)
        return seen

    def _unregister_broker(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        for identity, _connection in self._table.unregister(read_identity(command.ext)):
            _log.info("broker %s at %s unregistered", identity.name, identity.address)
        return command.reply()

    def _query_data_version(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        identity = read_identity(command.ext)
        asked = parse_data_version(parse_json(command.body) if len(command.body) else None)
        known = self._table.data_version(identity)
        self._table.touch(identity, self._now_ms())
        return command.reply(
            ext={"changed": "false" if known == asked else "true"},
            body=b"" if known is None else encode_data_version(known),
        )

    def _heartbeat(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        self._table.touch(read_identity(command.ext, id_default="0"), self._now_ms())
        return command.reply()

    def _member_group(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        cluster, name = required(command.ext, "clusterName"), required(command.ext, "brokerName")
        return command.reply(body=encode_member_group(self._table.member_group(cluster, name)))

    def _register_topic(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topic = required(command.ext, "topic")
        if len(command.body):
            self._table.register_topic(topic, decode_topic_route(command.body).queues)
        return command.reply()

    def _connection_closed(self, connection: Connection) -> None:
        for identity, _ in self._table.connection_closed(connection):
            _log.warning(
                "broker %s at %s is gone: its connection closed", identity.name, identity.address
            )

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1_000

    # Listings

    def _cluster_info(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=encode_cluster_info(self._table.cluster_info()))

    def _all_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return _listed(command, self._table.topics())

    def _topics_of_cluster(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return _listed(command, self._table.topics_of_cluster(required(command.ext, "cluster")))

    def _system_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return _listed(command, self._table.system_topics())

    def _unit_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return _listed(command, self._table.topics_with_flags(_is_unit))

    def _unit_subscription_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return _listed(command, self._table.topics_with_flags(_has_unit_subscription))

    def _foreign_unit_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return _listed(
            command,
            self._table.topics_with_flags(
                lambda flags: _has_unit_subscription(flags) and not _is_unit(flags)
            ),
        )

    # Administration

    def _wipe_write_permission(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        count = self._table.wipe_write_permission(required(command.ext, "brokerName"))
        return command.reply(ext={"wipeTopicCount": str(count)})

    def _add_write_permission(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        count = self._table.add_write_permission(required(command.ext, "brokerName"))
        return command.reply(ext={"addTopicCount": str(count)})

    def _delete_topic(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        cluster = command.ext.get("clusterName") or None
        self._table.delete_topic(required(command.ext, "topic"), cluster)
        return command.reply()

    def _put_kv(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        self._kv.put(required(ext, "namespace"), required(ext, "key"), required(ext, "value"))
        return command.reply()

    def _get_kv(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        namespace, key = required(command.ext, "namespace"), required(command.ext, "key")
        value = self._kv.get(namespace, key)
        if value is None:
            return command.reply(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {namespace[:255]} Key: {key[:255]}",
            )
        return command.reply(ext={"value": value})

    def _delete_kv(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        self._kv.delete(required(command.ext, "namespace"), required(command.ext, "key"))
        return command.reply()

    def _kv_namespace(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        namespace = required(command.ext, "namespace")
        pairs = self._kv.namespace(namespace)
        if not pairs:
            return command.reply(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace[:255]}"
            )
        return command.reply(body=encode_kv_table(pairs))

    def _get_settings(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=self._settings.as_properties())

    def _update_settings(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        changes = parse_properties(command.body)
        refused = self._settings.refused_keys(changes)
        if refused:
            return command.reply(
                ResponseCode.NO_PERMISSION,
                f"{', '.join(refused)[:255]} cannot be changed by a request",
            )
        self._settings = self._settings.updated(changes)
        return command.reply()


def _listed(command: RemotingCommand, topics: TopicList) -> RemotingCommand:
    return command.reply(body=encode_topic_list(topics))


def _is_unit(flags: int) -> bool:
    return bool(flags & UNIT_FLAG)


def _has_unit_subscription(flags: int) -> bool:
    return bool(flags & UNIT_SUBSCRIPTION_FLAG)


def _log_registration(name: str, address: str, result: RegisterResult) -> None:
    if result.stale:
        _log.warning("broker %s at %s is ignored: its id is in use by a newer one", name, address)
        return
    _log.info("broker %s at %s registered", name, address)
    if result.topics_invalid:
        _log.warning(
            "broker %s at %s: %d topics left out for their names or queue counts",
            name,
            address,
            result.topics_invalid,
        )
