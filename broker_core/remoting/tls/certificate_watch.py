"""Reloads certificates and authorities of a running server, for new connections.

If the files are invalid, the old certificate stays in use and the error is logged. The check
runs on a thread, because the disk may be slow.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker_core.errors import RmqError
from broker_core.runtime.repeated_check import RepeatedCheck

_log = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 10.0


class CertificateWatch(RepeatedCheck):
    """`load` makes a context of the files or raises an `RmqError`; `take` activates it."""

    def __init__(
        self,
        files: tuple[str, ...],
        load: Callable[[], ssl.SSLContext],
        take: Callable[[ssl.SSLContext], None],
    ) -> None:
        super().__init__(CHECK_INTERVAL_S)
        self._files = files
        self._load = load
        self._take = take
        self._stamp = _stamp(files)

    async def check(self) -> bool:
        """Check once; returns whether a new valid certificate was loaded."""
        stamp = await asyncio.to_thread(_stamp, self._files)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._take(await asyncio.to_thread(self._load))
        except RmqError as error:
            _log.error("the certificate was not reloaded: %s", error)
            return False
        _log.info("new connections get the certificate of %s", self._files[0])
        return True


def _stamp(files: tuple[str, ...]) -> tuple[object, ...]:
    found: list[object] = []
    for path in files:
        try:
            status = Path(path).stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)
