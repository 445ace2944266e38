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
        # Sockets that may not be a connection yet.
        self._tasks: dict[asyncio.Task[None], socket.socket] = {}
        self._failures = LimitedLog(_log, self._loop.time)
        self._accepting = AcceptLoop(bound, self._accepted, backlog)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Where it listens."""
        return self._accepting.sockets

    def close(self) -> None:
        """Accept no more; sockets that have not become a connection are shut down."""
        self._accepting.close()
        # Not cancelled: uvloop would not report the end of a connection that has just begun.
        for accepted in self._tasks.values():
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def _accepted(self, accepted: socket.socket, _: object) -> None:
        task = self._loop.create_task(self._connect(accepted))
        self._tasks[task] = accepted
        task.add_done_callback(self._tasks.pop)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            # Small answers leave at once.
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
