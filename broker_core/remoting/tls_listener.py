"""A port on which TLS, and plain text if allowed, is served: the first byte decides.

    0x16    a TLS handshake: the connection begins when it is done
    other   a plain frame: served as it is, or closed where only TLS is allowed

The byte is looked at while it stays in the socket, once per connection; what follows is an ordinary
connection. Peers that have not shown their first byte, or are in the middle of a handshake, count
against the limits of their host and have a deadline.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from broker_core.remoting.request_budget import HostLoad, RequestBudget
from broker_core.remoting.tls_context import ServerTls

_log = logging.getLogger(__name__)

_TLS_HANDSHAKE: Final = 0x16
_ACCEPTS_PER_TURN: Final = 64
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S: Final = 1.0


class TlsListener:
    """Accepts until closed; `make_protocol` is what a peer talks to in the end."""

    def __init__(
        self,
        bound: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ServerTls,
        budget: RequestBudget,
        backlog: int,
    ) -> None:
        self._socket = bound
        self._make_protocol = make_protocol
        self._tls = tls
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._arrivals: set[_Arrival] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        bound.setblocking(False)
        bound.listen(backlog)
        self._loop.add_reader(bound, self._accept)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Where it listens."""
        return () if self._is_closed else (self._socket,)

    def close(self) -> None:
        """Accept nobody any more; whoever has not become a connection is dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for arrival in list(self._arrivals):
            arrival.drop()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when nothing is left of it."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    # Inside

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    _log.error("cannot accept connections for a moment: %s", error)
                    self._loop.remove_reader(self._socket)
                    self._timer = self._loop.call_later(_PAUSE_S, self._accept_again)
                    return
                raise
            accepted.setblocking(False)
            # Small answers leave at once.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host = _host_of(address)
            load = self._budget.admit(host)
            if load is None:
                accepted.close()
            else:
                self._arrivals.add(_Arrival(self, accepted, host, load))

    def _accept_again(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def arrived(self, arrival: _Arrival, first: int) -> None:
        """The first byte of a peer is there."""
        self._arrivals.discard(arrival)
        if first != _TLS_HANDSHAKE and not self._tls.allows_plain:
            _log.info("closing %s: it does not speak TLS, which this port demands", arrival.host)
            arrival.close()
            return
        context = self._tls.context if first == _TLS_HANDSHAKE else None
        task = self._loop.create_task(self._connect(arrival, context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def ended(self, arrival: _Arrival) -> None:
        """A peer is gone, or too slow, before it said anything."""
        self._arrivals.discard(arrival)

    async def _connect(self, arrival: _Arrival, context: ssl.SSLContext | None) -> None:
        if context is None:
            # The connection counts itself.
            arrival.leave()
        timeout_s = self._tls.handshake_timeout_s if context is not None else None
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol, arrival.socket, ssl=context, ssl_handshake_timeout=timeout_s
            )
        except (OSError, asyncio.TimeoutError) as error:
            _log.info("closing %s: no TLS connection: %s", arrival.host, _reason(error))
            arrival.socket.close()
        finally:
            arrival.leave()


class _Arrival:
    """A socket whose first byte is awaited."""

    def __init__(
        self, listener: TlsListener, accepted: socket.socket, host: str, load: HostLoad
    ) -> None:
        self.socket = accepted
        self.host = host
        self._listener = listener
        self._load: HostLoad | None = load
        self._budget = listener._budget
        self._loop = listener._loop
        self._loop.add_reader(accepted, self._readable)
        timeout_s = self._budget.limits.partial_frame_timeout_ms / 1000
        self._timer = self._loop.call_later(timeout_s, self.drop)

    def drop(self) -> None:
        """Close it unheard."""
        self._stop_waiting()
        self.close()
        self._listener.ended(self)

    def close(self) -> None:
        """The socket goes, and with it its place in the limits."""
        self.socket.close()
        self.leave()

    def leave(self) -> None:
        """Count no longer."""
        load, self._load = self._load, None
        if load is not None:
            self._budget.leave(load)

    def _readable(self) -> None:
        try:
            first = self.socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self.drop()
            return
        self._stop_waiting()
        self._listener.arrived(self, first[0])

    def _stop_waiting(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self.socket)


def _host_of(address: object) -> str:
    host = str(address[0]).partition("%")[0] if isinstance(address, tuple) and address else "local"
    return host[len("::ffff:") :] if host.startswith("::ffff:") and "." in host else host


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return str(error) or "not done in time"
