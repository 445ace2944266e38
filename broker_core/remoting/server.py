"""Accepts connections and hands their requests to a handler.

Owns its connections and their shared limits. The handler interprets the requests.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from broker_core.codec.wire.frame_parser import HeaderDecoder
from broker_core.codec.wire.remoting_command import decode_header
from broker_core.config import RemotingLimits
from broker_core.remoting.closing import close_connections
from broker_core.remoting.connection import (
    Connection,
    RequestReceived,
    SignRequest,
    TakeFrames,
    closings_log,
)
from broker_core.remoting.limits.connection_load import ConnectionLoad
from broker_core.remoting.limits.request_budget import HostLoad, RequestBudget
from broker_core.remoting.request_dispatch import FrameHandler, Handler, RequestDispatcher
from broker_core.remoting.tls.context import ServerTls
from broker_core.remoting.tls.listener import TlsListener
from broker_core.runtime.clock import Clock, SystemClock
from broker_core.runtime.descriptors import raise_descriptor_limit
from broker_core.runtime.listener import Listener

_log = logging.getLogger(__name__)

_BACKLOG = 1024
# Minimum time for peers to read the last answers, even if the grace period is over.
_CLOSE_WAIT_MS = 200


def _never(host: str) -> bool:
    return False


def bind_address(host: str, port: int, *, reuse: bool = True) -> socket.socket:
    """A socket bound to an address but not listening, so that its port is known.

    With `reuse` the port may have connections in TIME_WAIT, or be bound by another socket that does
    not listen yet: the first one to listen gets it. A port that the system chooses (0) is never
    shared. Raises `OSError`, with the address in its text.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Explicit protocol: asyncio sets TCP_NODELAY only on sockets with IPPROTO_TCP.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if reuse and port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        # Connections inherit it: those in TIME_WAIT must not keep a restarted server from its port.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {reason}") from None
    return bound


class RemotingServer:
    """Serves one handler on any number of addresses."""

    serves = True
    # Requests of a server are not signed.
    sign_request: SignRequest | None = None

    def __init__(
        self,
        handler: Handler,
        limits: RemotingLimits | None = None,
        tls: ServerTls | None = None,
        clock: Clock | None = None,
        decoder: HeaderDecoder = decode_header,
        new_load: Callable[[RequestBudget, HostLoad], ConnectionLoad] = ConnectionLoad,
        needs_account: Callable[[str], bool] = _never,
        frame_handler: FrameHandler | None = None,
    ) -> None:
        self.limits = limits or RemotingLimits()
        self.clock: Clock = clock or SystemClock()
        self.budget = RequestBudget(self.limits)
        self.closings = closings_log(self.clock)
        self.connections: set[Connection] = set()
        # Wraps the protocol of each new connection; used for fault injection.
        self.link: Callable[[Connection], asyncio.BaseProtocol] | None = None
        self._handler = handler
        self._dispatcher = RequestDispatcher(handler, self.limits, self.budget, frame_handler)
        self._takes_frames = frame_handler is not None
        self.take_frames: TakeFrames | None = None
        self.intercept(None)
        self.request_received: RequestReceived = self._dispatcher.dispatch
        self.decode_header: HeaderDecoder = decoder
        self.new_load = new_load
        # Whether peers of a host must authenticate.
        self.needs_account = needs_account
        self._tls = tls
        self._listeners: list[Listener | TlsListener] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_stopping = False

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses of the listening sockets."""
        return [bound.getsockname()[:2] for server in self._listeners for bound in server.sockets]

    async def start(self, host: str, port: int) -> int:
        """Listen on one more address. Returns the port, chosen by the system for 0."""
        return await self.serve(bind_address(host, port))

    async def serve(self, bound: socket.socket) -> int:
        """Listen on a socket from `bind_address`; the server takes ownership."""
        loop = asyncio.get_running_loop()

        def new_connection() -> asyncio.BaseProtocol:
            connection = Connection(self, loop)
            return connection if self.link is None else self.link(connection)

        raise_descriptor_limit()
        listener: Listener | TlsListener
        if self._tls is None:
            listener = Listener(bound, new_connection, _BACKLOG)
        else:
            listener = TlsListener(bound, new_connection, self._tls, self.budget, _BACKLOG)
            if self._tls.watch is not None:
                self._tls.watch.begin()
        self._listeners.append(listener)
        if self._sweep_timer is None:
            self._schedule_sweep(loop)
        return int(listener.sockets[0].getsockname()[1])

    async def stop(self, grace_ms: float = 2_000) -> None:
        """Stop accepting, let running requests finish, answer them, close.

        Requests that arrive meanwhile are answered SERVICE_NOT_AVAILABLE; those not done after
        `grace_ms` are cancelled.
        """
        deadline = self.clock.monotonic() + grace_ms / 1000
        self._is_stopping = True
        self._dispatcher.is_stopping = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for listener in self._listeners:
            listener.close()
        try:
            await asyncio.wait_for(self.budget.until_idle(), grace_ms / 1000)
        except asyncio.TimeoutError:
            left = self.budget.requests + self.budget.held.count
            _log.warning("%d requests were not done in time", left)
        await self._dispatcher.cancel_all()
        left_ms = (deadline - self.clock.monotonic()) * 1000
        await close_connections(
            self.connections, "the server is shutting down", max(left_ms, _CLOSE_WAIT_MS)
        )
        if self._tls is not None and self._tls.watch is not None:
            await self._tls.watch.stop()
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()

    def intercept(self, wrap: Callable[[Handler], Handler] | None) -> None:
        """Replace the handler by `wrap(handler)`; None undoes that. For fault injection.

        Every request is then dispatched on its own.
        """
        self._dispatcher.handler = self._handler if wrap is None else wrap(self._handler)
        one_by_one = wrap is not None or not self._takes_frames
        self.take_frames = None if one_by_one else self._dispatcher.take_frames

    def sweep(self) -> None:
        """Close connections that are idle, stalled or not read; called every second."""
        now = self.clock.monotonic()
        for connection in list(self.connections):
            connection.expire(now)

    # What connections call

    def connection_opened(self, connection: Connection) -> bool:
        """Refuse when stopping."""
        if self._is_stopping:
            return False
        self.connections.add(connection)
        return True

    def connection_closed(self, connection: Connection) -> None:
        """Remove it from the connections."""
        self.connections.discard(connection)

    def _schedule_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep_timer = loop.call_later(
            self.limits.sweep_interval_ms / 1000, self._sweep_and_schedule, loop
        )

    def _sweep_and_schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._schedule_sweep(loop)
        self.sweep()
