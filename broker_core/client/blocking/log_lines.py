"""Log lines of the client in a program that has not configured logging: with a time and a prefix.

Without this, Python writes bare texts to standard error.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

# The client and the Spark connector.
LOGGERS: Final = ("broker_core", "pyspark_rmq")
FORMAT: Final = "%(asctime)s %(levelname)s rmq: %(message)s"
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"


if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[Any]
else:
    # Cannot be subscripted before Python 3.11.
    _StreamHandler = logging.StreamHandler


class _LinesOnStderr(_StreamHandler):
    """Writes warnings until the program has handlers of its own."""

    def __init__(self) -> None:
        logging.Handler.__init__(self, logging.WARNING)
        self.setFormatter(logging.Formatter(FORMAT, _TIME_FORMAT))

    @property
    def stream(self) -> Any:
        """Looked up for each line: notebooks and tests replace it."""
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


_lines: Final = _LinesOnStderr()


def write_log_lines() -> None:
    """Write warnings of the client to standard error. Calling it twice changes nothing."""
    for name in LOGGERS:
        logging.getLogger(name).addHandler(_lines)
