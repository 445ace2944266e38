"""The configuration of one broker, checked once. Frozen.

Field names are ours, with units; `broker_properties` maps RocketMQ's `broker.conf` keys to them.
The defaults are RocketMQ's, except that this broker listens on the loopback address by default.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final

from broker_core.broker.settings.broker_properties import (
    BROKER_PROPERTIES,
    FIXED_PROPERTIES,
    IGNORED_PROPERTIES,
    OTHER_NAMES,
    STORE_PATHS,
)
from broker_core.broker.settings.property_file import expanded_path, read_properties
from broker_core.broker.settings.security_settings import check_security_settings
from broker_core.codec.json.fields import I32_MAX
from broker_core.codec.wire.topic_name import topic_name_problem
from broker_core.config import PROPERTY_NAMES, StoreConfig, parse_setting
from broker_core.errors import InvalidConfig
from broker_core.protocol_codes import BrokerRole, FlushDiskType

__all__ = ["BrokerConfig", "read_properties"]

# A name is also part of system topics, which have at most 127 characters.
NAME_SIZE_MAX: Final = 100
NAME_SERVERS_MAX: Final = 64

_HOST_PORT = re.compile(r"(?:[a-zA-Z0-9_.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):([0-9]{1,5})")
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000

# Whole numbers -> the accepted range, both ends included.
_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "broker_id": (0, I32_MAX),
    "listen_port": (0, 65_535),
    "metrics_port": (0, 65_535),
    "slow_request_ms": (0, _DAY_MS),
    "ha_listen_port": (-1, 65_535),
    "ha_heartbeat_ms": (1, _MINUTE_MS),
    "ha_housekeeping_ms": (1, _DAY_MS),
    "ha_batch_size": (1, 64 << 20),
    "ha_frame_size": (1, 64 << 20),
    "ha_fall_behind_max": (1, 1 << 50),
    "ha_slaves_max": (1, 1_000),
    "in_sync_replicas": (1, 100),
    "min_in_sync_replicas": (1, 100),
    "slave_timeout_ms": (1, _DAY_MS),
    # Name servers forget a broker after two minutes.
    "register_period_ms": (1, _MINUTE_MS),
    "memory_read_ratio": (0, 100),
    "default_topic_queue_count": (1, 1024),
    "short_polling_ms": (1, _MINUTE_MS),
    "pop_in_flight_max": (1, 1_000_000),
    "offset_flush_interval_ms": (1, _DAY_MS),
    "delay_offset_flush_interval_ms": (1, _DAY_MS),
    # Clients send a heartbeat every 30 seconds and renew locks every 20.
    "client_expiry_ms": (1, _DAY_MS),
    "queue_lock_expiry_ms": (1, _DAY_MS),
    "transaction_timeout_ms": (1, _DAY_MS),
    "transaction_check_interval_ms": (1, _DAY_MS),
    "transaction_check_max": (1, 1_000),
    "topics_max": (1, 10_000_000),
    "groups_max": (1, 10_000_000),
    "queues_per_topic_max": (1, 65_536),
    "consumers_per_group_max": (1, 1_000_000),
    "offsets_max": (1, 100_000_000),
    "timer_delay_max_s": (1, 10 * 365 * 86_400),
}


def _broker_store() -> StoreConfig:
    # RocketMQ's brokers acknowledge before the sync by default; a bare store does not.
    return StoreConfig(flush_disk_type=FlushDiskType.ASYNC_FLUSH)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Every setting of one broker; `store` has those of its store.

    `store.store_host` is the address that clients get, `store.store_port` follows
    `listen_port`.
    """

    # Identity
    cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_id: int = 0
    region_id: str = "DefaultRegion"
    # Network; a port of 0 means any free one
    listen_host: str = "127.0.0.1"
    listen_port: int = 10911
    vip_port_enable: bool = True
    allow_remote: bool = False
    name_servers: tuple[str, ...] = ()
    register_period_ms: int = 30_000
    # Store
    store_root: str = "~/store"
    store: StoreConfig = dataclasses.field(default_factory=_broker_store)
    # Replication; 0 means listen_port + 1
    ha_listen_port: int = 0
    ha_master_address: str = ""
    ha_classic_master: bool = False
    ha_auth_key: str = dataclasses.field(default="", repr=False)
    ha_auth_key_file: str = ""
    ha_allow_without_key: bool = False
    ha_tls_enable: bool = False
    ha_heartbeat_ms: int = 5_000
    ha_housekeeping_ms: int = 20_000
    ha_batch_size: int = 32 << 10
    ha_frame_size: int = 1 << 20
    ha_fall_behind_max: int = 256 << 20
    ha_slaves_max: int = 16
    # Copies that a put of a SYNC_MASTER waits for, and its minimum; both count the master's
    in_sync_replicas: int = 2
    min_in_sync_replicas: int = 1
    slave_timeout_ms: int = 3_000
    slave_read_enable: bool = False
    offset_check_in_slave: bool = False
    # Percent of the machine's memory that readers of the newest messages share
    memory_read_ratio: int = 40
    # Topics and groups. None means: yes, if only this machine can connect.
    auto_create_topic: bool | None = None
    auto_create_group: bool = True
    default_topic_queue_count: int = 8
    broker_permission: int = 6
    property_filter_enable: bool = False
    # Pulls
    long_polling_enable: bool = True
    short_polling_ms: int = 1_000
    # Messages of one queue that a group may have popped and not acknowledged
    pop_in_flight_max: int = 10_000
    # Progress
    offset_flush_interval_ms: int = 5_000
    delay_offset_flush_interval_ms: int = 10_000
    # Clients
    client_expiry_ms: int = 120_000
    queue_lock_expiry_ms: int = 60_000
    # Transactions
    transaction_timeout_ms: int = 6_000
    transaction_check_interval_ms: int = 30_000
    transaction_check_max: int = 15
    reject_transactions: bool = False
    # Timers and replies
    timer_enable: bool = True
    timer_delay_max_s: int = 259_200
    recall_enable: bool = True
    store_replies: bool = True
    # Trace
    trace_on: bool = True
    trace_topic_enable: bool = False
    # Limits of the tables
    topics_max: int = 50_000
    groups_max: int = 50_000
    queues_per_topic_max: int = 1024
    consumers_per_group_max: int = 10_000
    offsets_max: int = 2_000_000
    # Access control
    acl_enable: bool = False
    access_file: str = ""
    acl_strict_signature: bool = False
    # Credentials of this broker for name servers and its master
    inner_access_key: str = ""
    inner_secret_key_file: str = ""
    # Encryption: of the ports that clients use, then of this broker's own connections
    tls_server_mode: str = "disabled"
    tls_server_cert: str = ""
    tls_server_key: str = ""
    tls_server_key_password_file: str = ""
    tls_server_client_auth: str = "none"
    tls_server_trust: str = ""
    tls_client_enable: bool = False
    tls_client_trust: str = ""
    tls_client_cert: str = ""
    tls_client_key: str = ""
    # Metrics and slow requests
    metrics_exporter: str = "DISABLE"
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 5557
    metrics_token_file: str = ""
    metrics_allow_without_token: bool = False
    slow_request_ms: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        if self.auto_create_topic is None:
            object.__setattr__(self, "auto_create_topic", _is_loopback(self.listen_host))
        self._check_numbers()
        self._check_identity()
        self._check_network()
        check_security_settings(self)
        if not self.store_root:
            raise InvalidConfig("store_root", self.store_root, "a directory")
        object.__setattr__(self, "store_root", expanded_path(self.store_root))
        if self.store.store_port != self.listen_port:
            store = dataclasses.replace(self.store, store_port=self.listen_port)
            object.__setattr__(self, "store", store)

    # What follows from the settings

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return _address(self.store.store_host, self.listen_port)

    @property
    def ha_address(self) -> str:
        """`host:port` for slaves."""
        port = self.ha_listen_port if self.ha_listen_port > 0 else self.listen_port + 1
        return _address(self.store.store_host, port)

    @property
    def is_master(self) -> bool:
        """Whether this broker accepts messages."""
        return self.store.broker_role is not BrokerRole.SLAVE

    def with_listen_port(self, port: int) -> BrokerConfig:
        """The same with the port that the system chose."""
        return dataclasses.replace(self, listen_port=port)

    def with_role(self, role: BrokerRole, broker_id: int) -> BrokerConfig:
        """The same broker as a master or a slave."""
        store = dataclasses.replace(self.store, broker_role=role)
        return dataclasses.replace(self, store=store, broker_id=broker_id)

    # Properties

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], source: str = "properties"
    ) -> tuple[BrokerConfig, tuple[str, ...]]:
        """Read `broker.conf` keys. Also returns the unknown keys.

        `source`, usually the file, is named in errors.
        """
        try:
            return _from_properties(properties)
        except InvalidConfig as error:
            raise error.renamed(error.key, error.source or source) from None

    def as_properties(self) -> dict[str, str]:
        """Every setting that has a property, as `from_properties` reads it."""
        shown = {key: _text(getattr(self, name)) for key, name in BROKER_PROPERTIES.items()}
        if self.ha_auth_key:
            shown["haAuthKey"] = "***"
        for key, name in PROPERTY_NAMES.items():
            shown[key] = _text(getattr(self.store, name))
        return shown

    # Checks

    def _check_types(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            wanted = _KINDS[field.name]
            # bool is an int in Python; a flag instead of a number is a mistake.
            if type(value) is not wanted and not (field.default is None and value is None):
                raise InvalidConfig(field.name, value, f"give a value of type {wanted.__name__}")

    def _check_numbers(self) -> None:
        for name, (least, most) in _RANGES.items():
            if not least <= getattr(self, name) <= most:
                accepted = f"a whole number from {least} to {most}"
                raise InvalidConfig(name, getattr(self, name), accepted)
        if self.broker_permission not in (0, 2, 4, 6):
            raise InvalidConfig(
                "broker_permission", self.broker_permission, "2 (write), 4 (read), 6 (both) or 0"
            )
        if self.default_topic_queue_count > self.queues_per_topic_max:
            raise InvalidConfig(
                "default_topic_queue_count",
                self.default_topic_queue_count,
                f"at most queues_per_topic_max ({self.queues_per_topic_max})",
            )

    def _check_identity(self) -> None:
        for name in ("cluster_name", "broker_name"):
            value = getattr(self, name)
            if len(value) > NAME_SIZE_MAX or topic_name_problem(value) is not None:
                raise InvalidConfig(
                    name,
                    value,
                    f"1 to {NAME_SIZE_MAX} characters of %|a-zA-Z0-9_-, because a topic has "
                    "this name, too",
                )
        if not re.fullmatch(r"[\x21-\x7e]{1,128}", self.region_id):
            raise InvalidConfig("region_id", self.region_id, "1 to 128 visible ASCII characters")
        if self.is_master and self.broker_id != 0:
            role = self.store.broker_role.value
            raise InvalidConfig("broker_id", self.broker_id, f"0, because brokerRole is {role}")
        if not self.is_master and self.broker_id == 0:
            raise InvalidConfig("broker_id", 0, "above 0, because brokerRole is SLAVE")

    def _check_network(self) -> None:
        if self.listen_host != "localhost" and _ip(self.listen_host) is None:
            raise InvalidConfig("listen_host", self.listen_host, "a numeric IP address")
        if not _is_loopback(self.listen_host) and not (self.allow_remote and self.acl_enable):
            raise InvalidConfig(
                "listen_host",
                self.listen_host,
                "other machines could connect: set allowRemote=true, and aclEnable=true with an "
                "accessFile that says who may do what, or use 127.0.0.1",
            )
        if self.ha_listen_port < 0 and self.store.broker_role is BrokerRole.SYNC_MASTER:
            raise InvalidConfig(
                "ha_listen_port", self.ha_listen_port, "a port: slaves of a SYNC_MASTER need one"
            )
        if len(self.name_servers) > NAME_SERVERS_MAX:
            count = len(self.name_servers)
            raise InvalidConfig("name_servers", count, f"at most {NAME_SERVERS_MAX} addresses")
        self._check_replication()
        for address in self.name_servers:
            found = _HOST_PORT.fullmatch(str(address))
            if found is None or not 1 <= int(found[1]) <= 65_535:
                raise InvalidConfig("name_servers", address, "host:port, separated by ;")

    def _check_replication(self) -> None:
        if self.ha_master_address:
            found = _HOST_PORT.fullmatch(self.ha_master_address)
            if found is None or not 1 <= int(found[1]) <= 65_535:
                raise InvalidConfig("ha_master_address", self.ha_master_address, "host:port")
        if self.min_in_sync_replicas > self.in_sync_replicas:
            raise InvalidConfig(
                "min_in_sync_replicas",
                self.min_in_sync_replicas,
                f"at most inSyncReplicas ({self.in_sync_replicas})",
            )
        if self.ha_auth_key and self.ha_auth_key_file:
            raise InvalidConfig(
                "ha_auth_key_file", self.ha_auth_key_file, "haAuthKey or haAuthKeyFile, not both"
            )
        has_key = bool(self.ha_auth_key or self.ha_auth_key_file)
        if has_key and self.ha_allow_without_key:
            raise InvalidConfig(
                "ha_allow_without_key",
                True,
                "haAuthKeyFile (or haAuthKey) or haAllowWithoutKey=true, not both",
            )
        is_open = has_key or self.ha_allow_without_key or self.ha_listen_port < 0
        if not is_open and not _is_loopback(self.listen_host):
            raise InvalidConfig(
                "ha_auth_key_file",
                "",
                "other machines could copy the log from the replication port and confirm messages: "
                "set haAuthKeyFile on master and slaves, or haListenPort=-1 for a broker that "
                "never has a slave; for Apache's slaves, which know no key, set "
                "haAllowWithoutKey=true on a network that only brokers can reach",
            )
        if self.ha_heartbeat_ms >= self.ha_housekeeping_ms:
            raise InvalidConfig(
                "ha_heartbeat_ms",
                self.ha_heartbeat_ms,
                f"below haHousekeepingInterval ({self.ha_housekeeping_ms})",
            )


def _kind(field: dataclasses.Field[Any]) -> type:
    if field.name == "auto_create_topic":
        return bool
    return StoreConfig if field.name == "store" else type(field.default)


_KINDS: Final[Mapping[str, type]] = {
    field.name: _kind(field) for field in dataclasses.fields(BrokerConfig)
}


def _from_properties(properties: Mapping[Any, Any]) -> tuple[BrokerConfig, tuple[str, ...]]:
    values: dict[str, Any] = {}
    given: dict[str, tuple[str, object]] = {}
    of_store: dict[str, str] = {}
    unknown = []
    for key, text in properties.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidConfig(str(key), text, "names and values must be strings")
        name = BROKER_PROPERTIES.get(OTHER_NAMES.get(key, key))
        if name == "metrics_host" and not text.strip():
            # Apache saves "choose" like this.
            continue
        if name is not None:
            values[name] = _parse(key, text.strip(), _KINDS[name])
            given[name] = (key, text)
        if key in PROPERTY_NAMES:
            of_store[key] = text
        elif key in FIXED_PROPERTIES:
            _check_fixed(key, text.strip())
        elif name is None and key not in IGNORED_PROPERTIES and key not in STORE_PATHS:
            unknown.append(key)
    _choose_address(values, of_store)
    of_store.setdefault("flushDiskType", FlushDiskType.ASYNC_FLUSH.value)
    values["store"], _ = StoreConfig.from_properties(of_store)
    try:
        config = BrokerConfig(**values)
    except InvalidConfig as error:
        # Name the property of the operator, not our field.
        key, text = given.get(error.key, (_PROPERTY_OF.get(error.key, error.key), error.value))
        raise InvalidConfig(key, text, error.accepted, anchor=error.anchor) from None
    _check_paths(properties, config.store_root)
    return config, tuple(unknown)


_PROPERTY_OF: Final[Mapping[str, str]] = {name: key for key, name in BROKER_PROPERTIES.items()}


def _parse(key: str, text: str, kind: type) -> object:
    if kind is tuple:
        # Registering twice with one name server is useless.
        return tuple(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))
    return parse_setting(key, text, kind)


def _check_fixed(key: str, text: str) -> None:
    accepted, reason = FIXED_PROPERTIES[key]
    if text.lower() != accepted.lower():
        raise InvalidConfig(key, text, f"only {accepted or 'an empty value'}: {reason}")


def _check_paths(properties: Mapping[str, str], root: str) -> None:
    for key, name in STORE_PATHS.items():
        wanted = f"{root.rstrip('/')}/{name}"
        if key in properties and expanded_path(properties[key].strip()).rstrip("/") != wanted:
            accepted = f"the files of a store are below storePathRootDir, here {wanted}"
            raise InvalidConfig(key, properties[key], accepted)


def _choose_address(values: Mapping[str, Any], of_store: dict[str, str]) -> None:
    """Fill in the address for clients, or raise when it cannot be known."""
    listen_host = values.get("listen_host", "")
    advertised = of_store.get("brokerIP1", "").strip()
    if advertised:
        if not listen_host and not _is_loopback(advertised):
            raise InvalidConfig(
                "brokerIP1",
                advertised,
                "the broker would not listen on the address that clients get: also set bindAddress "
                "(with allowRemote=true for other machines)",
            )
        return
    address = _ip(listen_host)
    if address is None:
        of_store["brokerIP1"] = "127.0.0.1"
    elif not address.is_unspecified:
        of_store["brokerIP1"] = listen_host
    elif values.get("allow_remote"):
        accepted = f"give the address that clients can connect to: bindAddress is {listen_host}"
        raise InvalidConfig("brokerIP1", advertised, accepted)


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _ip(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ";".join(value)
    return str(getattr(value, "value", value))
