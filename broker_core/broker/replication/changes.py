"""Changes of a running broker's role, one at a time, and the watch for reasons to change.

A change stops the broker and starts it again with another configuration or a shorter log. A start
that fails is retried until it succeeds or the broker is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Final

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.errors import LogsDiverged, RmqError, ServiceNotAvailable
from broker_core.protocol_codes import ResponseCode
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.replication.log_cut import Numbering, save_and_cut

_log = logging.getLogger(__name__)

_RETRY_S: Final = 2.0

Change = Coroutine[Any, Any, None]
Needed = Callable[[], Awaitable[Callable[[], Change] | None]]


class RoleChanges:
    """Event loop only."""

    def __init__(self, start: Callable[[], Awaitable[object]]) -> None:
        self._start = start
        self._change: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._look: asyncio.Event = asyncio.Event()
        self._ended: asyncio.Event = asyncio.Event()
        self._random = Random()

    def open(self) -> None:
        """The broker is started: changes are possible until `stop`."""
        self._ended = asyncio.Event()

    def watch(self, config: BrokerConfig, needed: Needed) -> None:
        """Ask periodically whether a change is `needed`, until one is."""
        self._end_watch()
        self._look = asyncio.Event()
        if config.name_servers and not self._ended.is_set():
            self._watching = asyncio.ensure_future(self._watch(config, needed))

    def look(self) -> None:
        """Ask at once: there may be a newer master."""
        self._look.set()

    def soon(self, change: Callable[[], Change]) -> bool:
        """Carry out a change in a task of its own; False when another one is under way.

        An exception that `change` raises before it returns goes to the caller; nothing has changed.
        """
        if self._is_changing or self._ended.is_set():
            return False
        begun = change()
        self._end_watch()
        self._change = asyncio.ensure_future(self._carry_out(begun))
        return True

    async def now(self, change: Callable[[], Change]) -> None:
        """Carry out a change after the one under way, and wait for it.

        Raises what the change raises, and `ServiceNotAvailable` when the broker is stopped first.
        """
        while self._change is not None and self._is_changing:
            await asyncio.wait((self._change,))
        if self._ended.is_set():
            raise ServiceNotAvailable(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is stopped")
        begun = asyncio.ensure_future(change())
        self._end_watch()
        self._change = asyncio.ensure_future(self._carry_out(begun))
        # Cancelling the caller must not leave a broker that is stopped and not started.
        await asyncio.shield(begun)

    async def stop(self) -> None:
        """No more changes; one that is under way is finished, or given up when its start fails."""
        self._ended.set()
        watching = self._watching
        self._end_watch()
        if watching is not None:
            await asyncio.wait((watching,))
        change = self._change
        if change is not None and change is not asyncio.current_task():
            await asyncio.wait((change,))

    @property
    def _is_changing(self) -> bool:
        return self._change is not None and not self._change.done()

    async def _carry_out(self, change: Awaitable[None]) -> None:
        try:
            await change
        except (RmqError, OSError) as error:
            _log.error("the broker is down: %s", error)
        else:
            return
        while not self._ended.is_set():
            try:
                await self._start()
            except (RmqError, OSError) as error:
                _log.error("the broker cannot start: %s", error)
            else:
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _RETRY_S)

    async def _watch(self, config: BrokerConfig, needed: Needed) -> None:
        while True:
            # Two brokers with one id overwrite each other's registration. Each sees the other only
            # at a moment that is independent of its own registration, hence the random period. The
            # newer of two masters registers again and notifies the other.
            period_s = config.register_period_ms / 1000 * self._random.uniform(0.3, 1.0)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._look.wait(), period_s)
            self._look.clear()
            if self._watching is not asyncio.current_task():
                # Cancelled just when the wait ended, so `wait_for` did not raise.
                return
            change = await needed()
            if change is not None and self._watching is asyncio.current_task():
                self._watching = None
                self.soon(change)
                return

    def _end_watch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None


def cut_store(config: BrokerConfig, error: LogsDiverged, numbering: Numbering) -> str:
    """Cut the end off the log of a stopped broker; returns where it was saved."""
    file_system = PosixFileSystem(config.store_root)
    try:
        path = save_and_cut(
            file_system,
            config.store.commit_log_file_size,
            error.agreed,
            error.end,
            numbering,
            os.getpid(),
        )
    finally:
        file_system.close()
    return f"{config.store_root}/{path}"
