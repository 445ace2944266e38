"""Loopback ports for servers that are told theirs, each given to one process of the machine only.

A Java server listens seconds after its port was chosen. Until then the port looks free to every
other test, so that a process takes ports from a range that it has to itself: the first whose lock
file is not locked.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import socket
import tempfile
import threading
from pathlib import Path
from typing import Final

# Away from the ports that the system gives to outgoing connections.
FIRST_PORT: Final = 12_000
RANGES: Final = 60
RANGE_SIZE: Final = 300
# A broker has ports one and two beside its own.
STEP: Final = 5


class PortRange:
    """Ports of this process; the lock ends with it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # Descriptors are inherited by a fork, which must not share what it was forked from has.
        self._owner = os.getpid()
        first = self._locked()
        self._ports = itertools.cycle(range(first + STEP, first + RANGE_SIZE - STEP, STEP))

    def _locked(self) -> int:
        directory = Path(tempfile.gettempdir()) / f"rmq-test-ports-{os.getuid()}"
        directory.mkdir(exist_ok=True)
        for number in random.sample(range(RANGES), RANGES):
            file = (directory / str(number)).open("w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            self._file = file
            return FIRST_PORT + number * RANGE_SIZE
        raise AssertionError(f"{RANGES} processes hold ports: see {directory}")

    def take(self, count: int) -> list[int]:
        """Ports without a listener, each with the one two below it free as well."""
        with self._guard:
            found: list[int] = []
            for port in itertools.islice(self._ports, RANGE_SIZE):
                if all(_is_free(near) for near in (port - 2, port)):
                    found.append(port)
                if len(found) == count:
                    return found
        raise AssertionError(f"fewer than {count} ports are free")

    @property
    def is_mine(self) -> bool:
        return self._owner == os.getpid()


_range: PortRange | None = None
_making = threading.Lock()


def free_ports(count: int) -> list[int]:
    """Ports without a listener that no other process is given."""
    global _range
    with _making:
        if _range is None or not _range.is_mine:
            _range = PortRange()
        return _range.take(count)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
