"""Closes many connections: gracefully first, then by force."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker_core.remoting.connection import Connection


def abort_handshake(connection: Connection, reason: str) -> None:
    """Abort a connection during its handshake; uvloop does not report its end."""
    connection.abort(reason)
    connection.connection_lost(None)


async def close_connections(
    connections: Iterable[Connection], reason: str, timeout_ms: float
) -> None:
    """Flush and close; abort those that are not flushed after `timeout_ms`."""
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[None]] = []
    closing = list(connections)
    for connection in closing:
        end: asyncio.Future[None] = loop.create_future()
        connection.on_close(lambda _, end=end: end.set_result(None))  # type: ignore[misc]
        ends.append(end)
        connection.close(reason)
    if not ends:
        return
    _, late = await asyncio.wait(ends, timeout=timeout_ms / 1000)
    if late:
        for connection in closing:
            connection.abort(reason)
        await asyncio.wait(late)
