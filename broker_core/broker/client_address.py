"""The address of a client: as records store it, and whether it is on this host."""

from __future__ import annotations

import ipaddress
from typing import Final

from broker_core.codec.records.host_address import encode_host
from broker_core.remoting.connection import Connection

# Connection attribute that caches the encoded address.
BORN_HOST: Final = "broker.born_host"


def born_host(connection: Connection) -> bytes:
    """The peer's address as records keep it."""
    host: bytes | None = connection.attributes.get(BORN_HOST)
    if host is None:
        ip, port = connection.peer
        host = encode_host((ip, port) if ip != "local" else ("127.0.0.1", 0))
        connection.attributes[BORN_HOST] = host
    return host


def is_loopback(connection: Connection) -> bool:
    """Whether the peer has a loopback address, so that it runs on this host."""
    try:
        return ipaddress.ip_address(connection.peer[0].partition("%")[0]).is_loopback
    except ValueError:
        return False
