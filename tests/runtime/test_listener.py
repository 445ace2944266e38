"""A listener that closes while a connection begins reports the end of that connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest

from broker_core.runtime.listener import Listener

LIMIT_S = 120


class Beginning(asyncio.Protocol):
    """Calls `begun` inside `connection_made`, when the connection is not yet handed over."""

    def __init__(self, begun: Callable[[], object], ended: asyncio.Event) -> None:
        self._begun = begun
        self._ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._begun()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


async def closed_while_a_connection_begins() -> None:
    bound = socket.create_server(("127.0.0.1", 0))
    ended = asyncio.Event()
    listener = Listener(bound, lambda: Beginning(lambda: listener.close(), ended), 10)
    reader, writer = await asyncio.open_connection(*bound.getsockname())
    try:
        await asyncio.wait_for(ended.wait(), LIMIT_S)
        await asyncio.wait_for(listener.wait_closed(), LIMIT_S)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
    finally:
        writer.close()


def test_the_end_of_a_connection_that_has_just_begun_is_reported_by_asyncio() -> None:
    asyncio.run(closed_while_a_connection_begins())


def test_the_end_of_a_connection_that_has_just_begun_is_reported_by_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(closed_while_a_connection_begins())
    finally:
        loop.close()
