"""Ports that belong to embedded servers, also before they start and while they are away.

A socket that is bound and does not listen keeps its port from everybody who asks the system for any
free one, and from connections that leave. A server that names the port may listen there all the
same, since both say `SO_REUSEADDR`. Elsewhere than on Linux that means less: there ports are found
but not kept.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

_CAN_HOLD: Final = sys.platform == "linux"
# Where embedded servers listen; their own module would make the owner import all of a broker.
_HOST: Final = "127.0.0.1"


class HeldPorts:
    """Give them back with `release`; the end of the process does as well."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def hold(self, port: int = 0) -> int:
        """Keep `port`, or any free one for 0; the number.

        One that somebody listens on is not kept: the server that is to listen there says so.
        """
        if port in self._sockets:
            return port
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((_HOST, port))
        except OSError:
            bound.close()
            if not port:
                raise
            return port
        number = int(bound.getsockname()[1])
        if _CAN_HOLD:
            self._sockets[number] = bound
        else:
            bound.close()
        return number

    def release(self) -> None:
        """Keep none of them any longer. Safe to call twice."""
        for bound in self._sockets.values():
            bound.close()
        self._sockets.clear()
