"""Accepts sockets on one port while file descriptors are available.

asyncio's own accept loop reports an error per waiting connection when descriptors run out.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from broker_core.runtime.descriptors import is_in_reserve
from broker_core.runtime.limited_log import LimitedLog

_log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN: Final = 64
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S: Final = 1.0
_LOG_INTERVAL_S: Final = 1.0


class AcceptLoop:
    """Calls `accepted` with each socket and its peer address until it is closed.

    Takes ownership of `bound`, also when it raises `OSError` because the port is taken.
    """

    def __init__(
        self,
        bound: socket.socket,
        accepted: Callable[[socket.socket, Any], object],
        backlog: int,
    ) -> None:
        self.socket = bound
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._errors = LimitedLog(_log, self._loop.time, 1, _LOG_INTERVAL_S)
        self.is_closed = False
        bound.setblocking(False)
        try:
            bound.listen(backlog)
        except OSError as error:
            host, port = bound.getsockname()[:2]
            bound.close()
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {reason}") from None
        self._loop.add_reader(bound, self._accept)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening socket; empty once closed."""
        return () if self.is_closed else (self.socket,)

    def close(self) -> None:
        """Stop accepting and close the socket."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self.socket)
        self.socket.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, address = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._errors.log(logging.ERROR, "cannot accept connections: %s", error)
                if error.errno in _OUT_OF_RESOURCES:
                    self._loop.remove_reader(self.socket)
                    self._timer = self._loop.call_later(_PAUSE_S, self._accept_again)
                return
            if is_in_reserve(accepted.fileno()):
                accepted.close()
                self._errors.log(
                    logging.ERROR,
                    "a connection is refused: the last descriptors are reserved for files; raise "
                    "the limit (ulimit -n)",
                )
                continue
            accepted.setblocking(False)
            self._accepted(accepted, address)

    def _accept_again(self) -> None:
        self._timer = None
        self._loop.add_reader(self.socket, self._accept)
