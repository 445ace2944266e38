"""Addresses of peers, and what limits per host count as one."""

from __future__ import annotations

import ipaddress
from typing import Final

# The smallest usual allocation: one owner has all addresses of a /64.
IPV6_PREFIX: Final = 64


def host_of(address: object) -> str:
    """The host of a socket's address."""
    if not isinstance(address, tuple) or not address:
        return "local"
    host = str(address[0]).partition("%")[0]
    return host[len("::ffff:") :] if host.startswith("::ffff:") and "." in host else host


def peer_address(name: object) -> tuple[str, int]:
    """Host and port from a socket's `peername`."""
    if not isinstance(name, tuple) or len(name) < 2:
        return ("local", 0)
    return (host_of(name), int(name[1]))


def is_loopback_host(host: str) -> bool:
    """Whether a peer is on this machine; `local` is a peer without an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "local"


def counted_host(host: str) -> str:
    """The key of limits per host: an IPv4 address, or the /64 network of an IPv6 one."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.is_loopback:
        return host
    return str(ipaddress.IPv6Network((address, IPV6_PREFIX), strict=False))
