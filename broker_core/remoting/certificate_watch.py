"""Takes up a new certificate while a server runs: connections that come later get it.

Files that cannot be used leave the certificate as it was and are reported. Looks are taken on a
thread, because the files may be on a slow disk.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from broker_core.errors import RmqError
from broker_core.runtime.repeated_check import RepeatedCheck

_log = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 10.0


class CertificateWatch(RepeatedCheck):
    """`load` puts certificate and key into a context, or raises an `RmqError`."""

    def __init__(
        self, context: ssl.SSLContext, files: tuple[str, ...], load: Callable[[ssl.SSLContext], Any]
    ) -> None:
        super().__init__(CHECK_INTERVAL_S)
        self._context = context
        self._files = files
        self._load = load
        self._stamp = _stamp(files)

    async def check(self) -> bool:
        """Look now; whether there was a new certificate that can be used."""
        stamp = await asyncio.to_thread(_stamp, self._files)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            # Tried elsewhere first: a failure must not spoil the context that is in use.
            await asyncio.to_thread(self._load, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(self._context)
        except RmqError as error:
            _log.error("the certificate stays as it was: %s", error)
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
