"""Spares tasks in Spark's Python workers a pause of 40 ms before their input.

Spark's JVM sends a worker first what to run and then what to run it on, over TCP and with Nagle's
algorithm on: the second piece waits until the first one is acknowledged. The worker's kernel puts
acknowledgements off, for there might be an answer to send them with, and there is none. Readers and
writers are part of the first piece, so that whoever unpickles one can have it acknowledged at once.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any, Final

_DESCRIPTORS: Final = "/proc/self/fd"
# Linux has it, and only there does it act at once.
_ACKNOWLEDGE: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class PromptInput:
    """What is sent to a worker, before the input of its task."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_input()


def acknowledge_input() -> None:
    """Acknowledge what this process has received so far, where the system can be asked to."""
    if _ACKNOWLEDGE is None:
        return
    # Spark does not say which connection is its own; the others lose nothing.
    with suppress(OSError), os.scandir(_DESCRIPTORS) as entries:
        for descriptor in [int(entry.name) for entry in entries]:
            _acknowledge(descriptor, _ACKNOWLEDGE)


def _acknowledge(descriptor: int, option: int) -> None:
    with suppress(OSError):
        connection = socket.socket(fileno=descriptor)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, option, 1)
        finally:
            # It is another's.
            connection.detach()
