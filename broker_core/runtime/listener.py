"""A listening port, in plain text or with TLS on every connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

from broker_core.runtime.accept_loop import AcceptLoop
from broker_core.runtime.limited_log import LimitedLog

_log = logging.getLogger(__name__)


class PendingSockets:
    """Accepted sockets that may not be a connection yet, and the tasks that connect them."""

    def __init__(self) -> None:
        self._sockets: dict[asyncio.Task[None], socket.socket] = {}

    def add(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        """Register a socket until its task has ended."""
        self._sockets[task] = accepted
        task.add_done_callback(self._sockets.pop)

    def shut_down(self) -> None:
        """End the connections. Their tasks are not cancelled.

        After a cancellation uvloop would not report the end of a connection that has just begun.
        """
        for accepted in self._sockets.values():
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)

    async def wait(self) -> None:
        """Wait until each socket has become a connection or ended."""
        if self._sockets:
            await asyncio.wait(tuple(self._sockets))


class Listener:
    """Accepts until closed; `make_protocol` creates the protocol of each connection."""

    def __init__(
        self,
        bound: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        backlog: int,
        tls: ssl.SSLContext | None = None,
        handshake_timeout_s: float | None = None,
    ) -> None:
        self._make_protocol = make_protocol
        self._tls = tls
        self._handshake_timeout_s = None if tls is None else handshake_timeout_s
        self._loop = asyncio.get_running_loop()
        self._pending = PendingSockets()
        self._failures = LimitedLog(_log, self._loop.time)
        self._accepting = AcceptLoop(bound, self._accepted, backlog)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening socket; empty once closed."""
        return self._accepting.sockets

    def close(self) -> None:
        """Stop accepting; sockets that have not become a connection are shut down."""
        self._accepting.close()
        self._pending.shut_down()

    async def wait_closed(self) -> None:
        """Wait until all sockets that were accepted have become a connection or ended."""
        await self._pending.wait()

    def _accepted(self, accepted: socket.socket, _: object) -> None:
        self._pending.add(accepted, self._loop.create_task(self._connect(accepted)))

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            # Send small responses at once.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_timeout_s,
            )
        except (OSError, asyncio.TimeoutError) as error:
            self._failures.info("a connection ended before it began: %s", error)
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
