"""A logger for messages that unauthenticated peers can cause: they must not fill the disk."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

_COUNT_MAX: Final = 60
_INTERVAL_S: Final = 60.0


class LimitedLog:
    """Logs at most `count_max` lines per interval; a later line has the number of omitted ones."""

    def __init__(
        self,
        log: logging.Logger,
        now: Callable[[], float],
        count_max: int = _COUNT_MAX,
        interval_s: float = _INTERVAL_S,
    ) -> None:
        """`now` is a monotonic time in seconds."""
        self._log = log
        self._now = now
        self._count_max = count_max
        self._interval_s = interval_s
        self._from = -math.inf
        self._count = 0
        self._left_out = 0

    def info(self, text: str, *values: object) -> None:
        """Log at INFO, or count."""
        self.log(logging.INFO, text, *values)

    def log(self, level: int, text: str, *values: object) -> None:
        """Log at a level, or count."""
        now = self._now()
        if now >= self._from + self._interval_s:
            self._from, self._count = now, 0
        if self._count >= self._count_max:
            self._left_out += 1
            return
        self._count += 1
        if self._left_out:
            text, values = f"{text} (%d more since the last report)", (*values, self._left_out)
            self._left_out = 0
        self._log.log(level, text, *values)
