"""(ip, port) <-> the host field of records and message ids: 4 or 16 address bytes and i32 port."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TypeAlias

from broker_core.codec.records.record_layout import IPV4_HOST_SIZE, IPV6_HOST_SIZE
from broker_core.errors import InvalidArgument

HostAddress: TypeAlias = tuple[str, int]


@lru_cache(maxsize=4096)
def encode_host(host: HostAddress) -> bytes:
    """8 bytes for an IPv4 address, 20 for IPv6; the address must be numeric."""
    ip, port = host
    try:
        address = ipaddress.ip_address(ip).packed
        return address + port.to_bytes(4, "big", signed=True)
    except (ValueError, OverflowError, AttributeError):
        raise InvalidArgument(f"host {host!r} must be a numeric address and a port") from None


@lru_cache(maxsize=4096)
def decode_host(field: bytes) -> HostAddress:
    """Address text and port of a host field."""
    if len(field) not in (IPV4_HOST_SIZE, IPV6_HOST_SIZE):
        raise InvalidArgument(f"host field has {len(field)} bytes, not 8 or 20")
    return str(ipaddress.ip_address(field[:-4])), int.from_bytes(field[-4:], "big", signed=True)
