"""Client message ids (`UNIQ_KEY`): the same for every retry, indexed for key queries.

    client IPv4 4 | pid 2 | random 4 | milliseconds since the month began 4 | counter 2

in upper-case hex. The random part distinguishes clients of one process, and processes with equal
address and pid, as in containers.
"""

from __future__ import annotations

import ipaddress
import os
import time
from typing import Final

from broker_core.client.connection.config import local_ip

_COUNTER_MASK: Final = 0xFFFF
_TIME_MASK: Final = 0xFFFFFFFF


class UniqueIds:
    """Ids of one producer; unique while fewer than 65,536 are made per millisecond."""

    def __init__(self, ip: str | None = None) -> None:
        address = ipaddress.IPv4Address(ip or local_ip()).packed
        pid = (os.getpid() & 0xFFFF).to_bytes(2, "big")
        self._prefix = (address + pid + os.urandom(4)).hex().upper()
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._counter = int.from_bytes(os.urandom(2), "big")

    def next(self, wall_ms: int) -> str:
        """The id of a message that is born at `wall_ms`."""
        if not self._month_start_ms <= wall_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(wall_ms)
        self._counter = self._counter + 1 & _COUNTER_MASK
        elapsed = wall_ms - self._month_start_ms & _TIME_MASK
        return "%s%08X%04X" % (self._prefix, elapsed, self._counter)  # noqa: UP031 - twice as fast


def _month_around(wall_ms: int) -> tuple[int, int]:
    """First instant of this month and of the next, in local time, as other clients count."""
    year, month = time.localtime(wall_ms // 1000)[:2]
    start = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    next_year, next_month = (year, month + 1) if month < 12 else (year + 1, 1)
    end = time.mktime((next_year, next_month, 1, 0, 0, 0, 0, 0, -1))
    return int(start) * 1000, int(end) * 1000
