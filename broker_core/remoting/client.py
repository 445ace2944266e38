"""Connections to servers by address: opened on first use, kept open, reopened when lost.

After a failed attempt there is no further one until a back-off time has passed, which grows
exponentially. Until then requests to the address fail at once, so that callers can use another one.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable

from broker_core.codec.wire.frame_parser import HeaderDecoder
from broker_core.codec.wire.remoting_command import RemotingCommand, decode_header
from broker_core.config import RemotingLimits
from broker_core.errors import (
    ConnectionLost,
    InvalidArgument,
    RequestNotSupported,
    RequestTimeout,
    TlsFailed,
)
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.closing import abort_handshake, close_connections
from broker_core.remoting.connection import (
    ClientConnection,
    Connection,
    RequestReceived,
    SignRequest,
    TakeFrames,
    closings_log,
)
from broker_core.remoting.limits.connection_load import ConnectionLoad
from broker_core.remoting.limits.request_budget import HostLoad, RequestBudget
from broker_core.remoting.request_dispatch import Handler, RequestDispatcher
from broker_core.runtime.clock import Clock, SystemClock

# Time for a server to read the last bytes.
_CLOSE_WAIT_MS = 200


def parse_address(address: str) -> tuple[str, int]:
    """`host:port` or `[ipv6]:port`."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidArgument(f"{address!r:.100} is not host:port")
    return host.strip("[]"), int(port)


class _Link:
    """One address: its connection, or the attempt to get one."""

    __slots__ = ("connection", "delay_ms", "failure", "opening", "retry_at")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.opening: asyncio.Task[Connection] | None = None
        self.delay_ms = 0
        self.retry_at = 0.0
        # Why the last attempt failed; raised again until `retry_at`.
        self.failure = ConnectionLost("never tried")


def _is_tls_failure(error: BaseException) -> bool:
    # A server that does not speak TLS closes or resets the connection in the handshake.
    return isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError)


def _tls_reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the server was rejected: {error.verify_message}"
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if reason not in (None, "UNEXPECTED_EOF_WHILE_READING"):
        return str(reason)
    return "the server ended the handshake; it may not speak TLS, or require a client certificate"


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        # asyncio's text repeats the address.
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error) or "no answer in time"


def _refuse_requests(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    raise RequestNotSupported(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request type {command.code} not supported"
    )


class RemotingClient:
    """Requests to any number of servers; their own requests go to `request_handler`."""

    serves = False
    take_frames: TakeFrames | None = None

    def __init__(
        self,
        limits: RemotingLimits | None = None,
        request_handler: Handler | None = None,
        ssl_context: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        sign_request: SignRequest | None = None,
    ) -> None:
        self.limits = limits or RemotingLimits()
        self.clock: Clock = clock or SystemClock()
        self.budget = RequestBudget(self.limits)
        self.closings = closings_log(self.clock)
        self._dispatcher = RequestDispatcher(
            request_handler or _refuse_requests, self.limits, self.budget
        )
        self.request_received: RequestReceived = self._dispatcher.dispatch
        self.decode_header: HeaderDecoder = decode_header
        self.sign_request = sign_request
        self.new_load: Callable[[RequestBudget, HostLoad], ConnectionLoad] = ConnectionLoad
        self._ssl_context = ssl_context
        self._links: dict[str, _Link] = {}
        self._connections: set[Connection] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def request(
        self, address: str, command: RemotingCommand, timeout_ms: float
    ) -> RemotingCommand:
        """Send to `address` (`host:port`) and return the answer, with any response code.

        Raises `ConnectionLost` or `RequestTimeout`.
        """
        link = self._links.get(address)
        connection = link.connection if link is not None else None
        if connection is None or connection.is_closed:
            started = self.clock.monotonic()
            connection = await self.connect(address, timeout_ms)
            timeout_ms -= (self.clock.monotonic() - started) * 1000
        return await connection.request(command, max(timeout_ms, 1))

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        """Send without an answer; waits only for a connection and for room to write."""
        connection = await self.connect(address, self.limits.connect_timeout_ms)
        if not connection.is_writable:
            await connection.writable(self.limits.connect_timeout_ms)
        connection.oneway(command)

    async def connect(self, address: str, timeout_ms: float) -> Connection:
        """The connection to `address`, opened if necessary."""
        if self._is_closed:
            raise ConnectionLost("the client is closed")
        link = self._links.get(address)
        if link is None:
            parse_address(address)
            link = self._links[address] = _Link()
        if link.connection is not None and not link.connection.is_closed:
            return link.connection
        if link.opening is None:
            if self.clock.monotonic() < link.retry_at:
                raise type(link.failure)(*link.failure.args)
            link.opening = asyncio.ensure_future(self._open(address, link))
        # Not cancelled with this caller: others may wait for the same attempt.
        done, _ = await asyncio.wait((link.opening,), timeout=timeout_ms / 1000)
        if not done:
            raise RequestTimeout(f"{address} was not reached within {timeout_ms:g} ms")
        return done.pop().result()

    def connection_to(self, address: str) -> Connection | None:
        """The open connection to `address`, if there is one."""
        link = self._links.get(address)
        if link is None or link.connection is None or link.connection.is_closed:
            return None
        return link.connection

    async def close(self) -> None:
        """Close all connections; pending requests fail with `ConnectionLost`."""
        self._is_closed = True
        self._dispatcher.is_stopping = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        await self._dispatcher.cancel_all()
        openings = [link.opening for link in self._links.values() if link.opening is not None]
        self._links.clear()
        for opening in openings:
            opening.cancel()
        if openings:
            await asyncio.wait(openings)
        await close_connections(self._connections, "the client was closed", _CLOSE_WAIT_MS)

    def sweep(self) -> None:
        """Close connections that are idle, stalled or not read; called every second."""
        now = self.clock.monotonic()
        for connection in list(self._connections):
            connection.expire(now)

    # What connections call

    def needs_account(self, host: str) -> bool:
        """False: servers do not authenticate to clients."""
        return False

    def connection_opened(self, connection: Connection) -> bool:
        """Refuse when closed."""
        if self._is_closed:
            return False
        self._connections.add(connection)
        return True

    def connection_closed(self, connection: Connection) -> None:
        """Forget the connection; the next request opens a new one."""
        self._connections.discard(connection)

    async def _open(self, address: str, link: _Link) -> Connection:
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()
        connection, is_open = ClientConnection(self, loop), False
        try:
            await asyncio.wait_for(
                loop.create_connection(lambda: connection, host, port, ssl=self._ssl_context),
                self.limits.connect_timeout_ms / 1000,
            )
            is_open = True
        except (OSError, asyncio.TimeoutError) as error:
            is_tls_failure = self._ssl_context is not None and _is_tls_failure(error)
            link.retry_at = self.clock.monotonic() + link.delay_ms / 1000
            link.delay_ms = min(
                max(link.delay_ms * 2, self.limits.reconnect_delay_min_ms),
                self.limits.reconnect_delay_max_ms,
            )
            if is_tls_failure:
                link.failure = TlsFailed(f"no TLS connection to {address}: {_tls_reason(error)}")
            else:
                link.failure = ConnectionLost(f"{address} could not be reached: {_reason(error)}")
            raise link.failure from None
        finally:
            link.opening = None
            if not is_open:
                abort_handshake(connection, "aborted while connecting")
        link.connection = connection
        link.delay_ms = 0
        if self._sweep_timer is None:
            self._schedule_sweep(loop)
        return connection

    def _schedule_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep_timer = loop.call_later(
            self.limits.sweep_interval_ms / 1000, self._sweep_and_schedule, loop
        )

    def _sweep_and_schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._schedule_sweep(loop)
        self.sweep()
