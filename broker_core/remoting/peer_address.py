"""Who is at the other end of a socket."""

from __future__ import annotations

import asyncio


def peer_address(transport: asyncio.BaseTransport) -> tuple[str, int]:
    """Host and port; IPv4 addresses in their own form also when the socket is an IPv6 one."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple) or len(name) < 2:
        return ("local", 0)
    host = str(name[0]).partition("%")[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[len("::ffff:") :]
    return (host, int(name[1]))
