"""Ids of the messages of one producer (see `codec/wire/unique_key.py`), from the wall clock.

An id stays the same for every retry and is indexed for key queries.
"""

from __future__ import annotations

import ipaddress
import os
import time

from broker_core.client.connection.config import local_ip
from broker_core.codec.wire.unique_key import UniqueKeys


class UniqueIds:
    """Ids of one producer."""

    def __init__(self, ip: str | None = None) -> None:
        address = ipaddress.IPv4Address(ip or local_ip()).packed
        token, count = os.urandom(4), os.urandom(2)
        self._keys = UniqueKeys(
            address, os.getpid(), int.from_bytes(token, "big"), int.from_bytes(count, "big")
        )
        self._month_start_ms = 0
        self._month_end_ms = 0

    def next(self, wall_ms: int) -> str:
        """The id of a message that is born at `wall_ms`."""
        if not self._month_start_ms <= wall_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(wall_ms)
        return self._keys.next(wall_ms - self._month_start_ms)


def _month_around(wall_ms: int) -> tuple[int, int]:
    """First instant of this month and of the next, in local time, as other clients count."""
    year, month = time.localtime(wall_ms // 1000)[:2]
    start = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    next_year, next_month = (year, month + 1) if month < 12 else (year + 1, 1)
    end = time.mktime((next_year, next_month, 1, 0, 0, 0, 0, 0, -1))
    return int(start) * 1000, int(end) * 1000
