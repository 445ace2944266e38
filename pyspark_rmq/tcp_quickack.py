"""Avoids a delay of 40 ms before the input of a task in Spark's Python workers.

Spark's JVM sends a worker first the function and then its input, over TCP with Nagle's algorithm:
the second write waits until the first is acknowledged. The worker's kernel delays acknowledgements
in the hope of data to send along, and there is none. Readers and writers are part of the first
write, so unpickling one is the moment to request an immediate acknowledgement (TCP_QUICKACK).
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any, Final

_DESCRIPTORS: Final = "/proc/self/fd"
# Linux only.
_ACKNOWLEDGE: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class QuickAckInput:
    """Base of objects that Spark sends to a worker before the input of its task."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_input()


def acknowledge_input() -> None:
    """Acknowledge all data that this process has received, where the system supports it."""
    if _ACKNOWLEDGE is None:
        return
    # Spark does not tell which connection is its own; for others it is harmless.
    with suppress(OSError), os.scandir(_DESCRIPTORS) as entries:
        for descriptor in [int(entry.name) for entry in entries]:
            _acknowledge(descriptor, _ACKNOWLEDGE)


def _acknowledge(descriptor: int, option: int) -> None:
    with suppress(OSError):
        connection = socket.socket(fileno=descriptor)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, option, 1)
        finally:
            # The descriptor belongs to another object.
            connection.detach()
