"""Reserves ports for embedded servers before they start and while they are down.

A socket that is bound but does not listen keeps the system from assigning its port to others. A
server can still listen on the port, since both use `SO_REUSEADDR`. This works on Linux; on other
systems a free port is found but not reserved.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from broker_core.errors import InvalidArgument

_CAN_HOLD: Final = sys.platform == "linux"
# Where embedded servers listen; their own module would make the owner import all of a broker.
_HOST: Final = "127.0.0.1"


_PORT_MAX: Final = 65_535


def checked_ports(**ports: int) -> tuple[int, ...]:
    """The values, 0 for any free port; raises `InvalidArgument` with the name of a wrong one."""
    for name, port in ports.items():
        if type(port) is not int or not 0 <= port <= _PORT_MAX:
            raise InvalidArgument(
                f"{name}={port!r:.40} is not a port: give 0, for any free one, to {_PORT_MAX}"
            )
    return tuple(ports.values())


class HeldPorts:
    """Released by `release`, or by the end of the process."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def hold(self, port: int = 0) -> int:
        """Reserve `port`, or any free one for 0; returns its number.

        A port in use is not reserved; the server that is to listen there reports the error.
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
        """Release all of them. Safe to call twice."""
        for bound in self._sockets.values():
            bound.close()
        self._sockets.clear()
