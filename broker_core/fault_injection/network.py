"""Faults of a network: latency, a cut, lost connections.

`FaultyLink` stands between the transport and the connection of one client. Links are put in place
when the first fault begins, so that a broker without faults has none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from broker_core.remoting.connection import Connection
from broker_core.remoting.server import RemotingServer

# Sees output of a connection before it is written.
BeforeWrite = Callable[[Connection, bytes], None]


class NetworkFaults:
    """The active faults between one server and its clients. Event loop only."""

    def __init__(self, server: RemotingServer) -> None:
        self._server = server
        self._links: set[FaultyLink] = set()
        self.is_cut = False
        self.delay_s = 0.0
        self.drop_every = 0
        """Drop the connection instead of each so many-th answer; 0: never."""
        self.before_write: BeforeWrite | None = None
        self._answers = 0

    def drop(self, every: int) -> None:
        """Drop all connections now, and one instead of each `every`-th answer; 0: no more."""
        self.drop_every, self._answers = every, 0
        self.changed()
        if every:
            for connection in list(self._server.connections):
                connection.abort("dropped_connections: a fault on purpose")

    def changed(self) -> None:
        """Insert links if a fault is active; release held data if none is."""
        is_on = self.is_cut or self.delay_s or self.drop_every or self.before_write
        self._server.link = self._new_link if is_on else None
        if is_on:
            linked = {link.connection for link in self._links}
            for connection in self._server.connections - linked:
                self._new_link(connection).take_over()
        if not self.is_cut:
            for link in list(self._links):
                link.release()

    def loses_answer(self) -> bool:
        """Whether the connection of the next answer is to be dropped."""
        if not self.drop_every:
            return False
        self._answers += 1
        return self._answers % self.drop_every == 0

    def ended(self, link: FaultyLink) -> None:
        """The connection of a link is closed."""
        self._links.discard(link)

    def _new_link(self, connection: Connection) -> FaultyLink:
        link = FaultyLink(self, connection)
        self._links.add(link)
        return link


class FaultyLink(asyncio.Protocol):
    """Protocol of the transport, transport of the connection."""

    def __init__(self, faults: NetworkFaults, connection: Connection) -> None:
        self._faults = faults
        self.connection = connection
        self._transport: Any = None
        self._arrived: deque[bytes] = deque()
        self._unsent: list[bytes] = []

    def take_over(self) -> None:
        """Insert this link between a connection and its transport."""
        self._transport = self.connection.replace_transport(cast(asyncio.Transport, self))
        if self._transport is not None:
            self._transport.set_protocol(self)

    def release(self) -> None:
        """Pass on the data that a cut has held back."""
        unsent, self._unsent = self._unsent, []
        for data in unsent:
            self.write(data)
        for _ in range(len(self._arrived)):
            self._deliver()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection that begins during a fault."""
        self._transport = transport
        self.connection.connection_made(cast(asyncio.Transport, self))

    def data_received(self, data: bytes) -> None:
        """Pass data on: at once, later, or after a cut."""
        faults = self._faults
        if not (faults.is_cut or faults.delay_s or self._arrived):
            self.connection.data_received(data)
            return
        self._arrived.append(bytes(data))
        if not faults.is_cut:
            asyncio.get_running_loop().call_later(faults.delay_s, self._deliver)

    def eof_received(self) -> bool | None:
        """The client will send nothing more."""
        return self.connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """What was held back is lost."""
        self._arrived.clear()
        self._unsent.clear()
        self._faults.ended(self)
        self.connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read."""
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self.connection.resume_writing()

    # Called by the connection, as of a transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Pass output on, hold it back or drop the connection."""
        faults = self._faults
        if faults.is_cut:
            # A view is valid only until the next turn of the loop.
            self._unsent.append(bytes(data))
            return
        if faults.before_write is not None:
            faults.before_write(self.connection, bytes(data))
        if faults.loses_answer():
            self.connection.abort("dropped_connections: a fault on purpose")
            return
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        # Everything else of a transport.
        return getattr(self._transport, name)

    def _deliver(self) -> None:
        if self._faults.is_cut or not self._arrived or self.connection.is_closed:
            return
        self.connection.data_received(self._arrived.popleft())
