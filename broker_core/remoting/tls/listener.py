"""A listening port for TLS, and plain text if allowed; the first byte decides.

    0x16    a TLS handshake: the connection begins when it is done
    other   a plain frame: served, or closed where only TLS is allowed

The byte is peeked once per connection; the rest is an ordinary connection. Until the first byte and
during the handshake a peer counts towards the limits of its host and has a deadline.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from broker_core.remoting.limits.request_budget import HostLoad, RequestBudget
from broker_core.remoting.tls.context import ServerTls
from broker_core.runtime.accept_loop import AcceptLoop
from broker_core.runtime.limited_log import LimitedLog
from broker_core.runtime.listener import PendingSockets
from broker_core.runtime.peer_host import host_of

_log = logging.getLogger(__name__)

_TLS_HANDSHAKE: Final = 0x16


class TlsListener:
    """Accepts until closed; `make_protocol` creates the protocol of each connection."""

    def __init__(
        self,
        bound: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        tls: ServerTls,
        budget: RequestBudget,
        backlog: int,
    ) -> None:
        self._make_protocol = make_protocol
        self._tls = tls
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._arrivals: set[_Arrival] = set()
        self._pending = PendingSockets()
        self._closings = LimitedLog(_log, self._loop.time)
        self._accepting = AcceptLoop(bound, self._accepted, backlog)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening socket; empty once closed."""
        return self._accepting.sockets

    def close(self) -> None:
        """Stop accepting; sockets that are not yet a connection are closed."""
        if self._accepting.is_closed:
            return
        self._accepting.close()
        for arrival in list(self._arrivals):
            arrival.drop()
        self._pending.shut_down()

    async def wait_closed(self) -> None:
        await self._pending.wait()

    def _accepted(self, accepted: socket.socket, address: object) -> None:
        # Send small responses at once.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host = host_of(address)
        load = self._budget.admit(host)
        if load is None:
            accepted.close()
        else:
            self._arrivals.add(_Arrival(self, accepted, host, load))

    def arrived(self, arrival: _Arrival, first: int) -> None:
        """The first byte has arrived."""
        self._arrivals.discard(arrival)
        if first != _TLS_HANDSHAKE and not self._tls.allows_plain:
            self._closings.info(
                "closing %s: it does not speak TLS, which this port requires", arrival.host
            )
            arrival.close()
            return
        context = self._tls.context if first == _TLS_HANDSHAKE else None
        self._pending.add(arrival.socket, self._loop.create_task(self._connect(arrival, context)))

    def ended(self, arrival: _Arrival) -> None:
        """Forget a peer that closed or sent no byte in time."""
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
            self._closings.info("closing %s: no TLS connection: %s", arrival.host, _reason(error))
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
        """Close the socket."""
        self._stop_waiting()
        self.close()
        self._listener.ended(self)

    def close(self) -> None:
        """Close the socket and release its place in the limits."""
        self.socket.close()
        self.leave()

    def leave(self) -> None:
        """Release its place in the limits."""
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


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return str(error) or "not done in time"
