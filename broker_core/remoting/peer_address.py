"""Addresses of peers."""

from __future__ import annotations

import asyncio

from broker_core.runtime.peer_host import host_of


def peer_address(transport: asyncio.BaseTransport) -> tuple[str, int]:
    """Host and port; IPv4-mapped IPv6 addresses as IPv4."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple) or len(name) < 2:
        return ("local", 0)
    return (host_of(name), int(name[1]))
