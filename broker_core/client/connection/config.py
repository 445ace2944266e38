"""`ClientConfig`: name servers, client id, timeouts and limits, checked on construction."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from broker_core.client.connection.security import check_security
from broker_core.codec.wire.bodies.heartbeat_data import CLIENT_ID_SIZE_MAX
from broker_core.config import RemotingLimits
from broker_core.errors import InvalidArgument, InvalidConfig
from broker_core.remoting.client import parse_address

BODY_SIZE_MAX: Final = 4 << 20
DECOMPRESSED_SIZE_MAX: Final = 16 << 20
COMPRESS_FROM_SIZE: Final = 4096

# An address reserved for documentation. Connecting a UDP socket sends nothing.
_PROBED_ADDRESS: Final = ("192.0.2.1", 9)


def _client_limits() -> RemotingLimits:
    # The answer to a batch lists the ids of all its messages in its header.
    return RemotingLimits(header_size_max=4 << 20)


@dataclasses.dataclass(frozen=True)
class ClientConfig:
    """Settings of one `ClientInstance`.

    `name_servers` also accepts RocketMQ's form `host:port;host:port`. `address_rewrite` maps
    advertised to reachable addresses, also as text `advertised:port=reachable:port,…`, for brokers
    that advertise an address this client cannot reach, such as a container's.
    """

    name_servers: tuple[str, ...]
    client_id: str = ""
    request_timeout_ms: int = 3_000
    heartbeat_interval_ms: int = 30_000
    route_poll_interval_ms: int = 30_000
    offset_persist_interval_ms: int = 5_000
    address_rewrite: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body_size_max: int = BODY_SIZE_MAX
    decompressed_size_max: int = DECOMPRESSED_SIZE_MAX
    # Bodies of at least this size are sent compressed; 0 never compresses.
    compress_from_size: int = COMPRESS_FROM_SIZE
    compression_level: int = 5
    remoting: RemotingLimits = dataclasses.field(default_factory=_client_limits)
    # With a key, requests are signed. `repr` shows neither secret nor token.
    access_key: str = ""
    secret_key: str = dataclasses.field(default="", repr=False)
    security_token: str = dataclasses.field(default="", repr=False)
    # Paths of PEM files; without `tls_ca` the system's authorities are trusted.
    tls_enable: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_verify: bool = True

    def __post_init__(self) -> None:
        servers = parse_name_servers(self.name_servers)
        object.__setattr__(self, "name_servers", servers)
        rewrite = parse_address_rewrite(self.address_rewrite)
        object.__setattr__(self, "address_rewrite", MappingProxyType(rewrite))
        if not self.client_id:
            object.__setattr__(self, "client_id", new_client_id())
        if len(self.client_id) > CLIENT_ID_SIZE_MAX or not self.client_id.isprintable():
            accepted = f"printable text of at most {CLIENT_ID_SIZE_MAX} characters"
            raise InvalidConfig("client_id", self.client_id, accepted)
        for name in _POSITIVE:
            _check_whole(name, getattr(self, name), 1, 1 << 31)
        _check_whole("compress_from_size", self.compress_from_size, 0, 1 << 31)
        _check_whole("compression_level", self.compression_level, 1, 9)
        check_security(self)
        # The header and the frame's length fields need room beside the body.
        most = self.remoting.frame_size_max - self.remoting.header_size_max - 8
        if self.body_size_max > most:
            raise InvalidConfig(
                "body_size_max", self.body_size_max, f"at most {most}, so that a frame can hold it"
            )


_POSITIVE: Final = (
    "request_timeout_ms",
    "heartbeat_interval_ms",
    "route_poll_interval_ms",
    "offset_persist_interval_ms",
    "body_size_max",
    "decompressed_size_max",
)


def parse_name_servers(given: str | Iterable[str]) -> tuple[str, ...]:
    """Addresses from `host:port;host:port` (or with commas), or from a sequence."""
    texts = given.replace(",", ";").split(";") if isinstance(given, str) else list(given)
    servers = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
    accepted = "host:port, several separated by ;"
    if not servers:
        raise InvalidConfig("name_servers", given, accepted)
    for server in servers:
        scheme, is_url, address = server.partition("://")
        if is_url:
            plain = address.rstrip("/") or "host:port"
            raise InvalidConfig(
                "name_servers",
                server,
                f"an address has no scheme: leave out {scheme}:// and write {plain}",
                anchor="name-server-with-a-scheme",
            )
        _check_address("name_servers", server, accepted)
    return servers


def parse_address_rewrite(given: str | Mapping[str, str]) -> dict[str, str]:
    """`{advertised: reachable}` from a mapping or from `advertised:port=reachable:port,…`."""
    accepted = "advertised:port=reachable:port, several separated by ,"
    if isinstance(given, str):
        pairs = [text.strip().partition("=") for text in given.split(",") if text.strip()]
        table = {left.strip(): right.strip() for left, _, right in pairs}
    else:
        table = dict(given)
    for advertised, reachable in table.items():
        _check_address("address_rewrite", advertised, accepted)
        _check_address("address_rewrite", reachable, accepted)
    return table


def new_client_id() -> str:
    """A unique `ip@pid#random`: equal ids in a group would break the queue allocation."""
    return f"{local_ip()}@{os.getpid()}#{int.from_bytes(os.urandom(8), 'big')}"


def local_ip() -> str:
    """The address of the default route's interface; sends no packet and resolves no name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_PROBED_ADDRESS)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _check_address(key: str, address: object, accepted: str) -> None:
    try:
        parse_address(str(address))
    except InvalidArgument:
        raise InvalidConfig(key, address, accepted) from None


def _check_whole(key: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InvalidConfig(key, value, f"a whole number from {least} to {most}")
