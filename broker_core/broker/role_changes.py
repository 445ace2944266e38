"""Changes of a running broker's role, one at a time, and the watch for a newer master.

A change stops the broker and starts it again with another configuration or a shorter log. When the
start fails it is tried again: nobody is there to do it by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Final

from broker_core.broker.broker_config import BrokerConfig
from broker_core.broker.newer_master import NewerMaster, find_newer_master
from broker_core.errors import LogsDiverged, RmqError
from broker_core.replication.log_epochs import EpochHistory
from broker_core.storage.posix_file_system import PosixFileSystem
from broker_core.store.log_cut import Numbering, save_and_cut

_log = logging.getLogger(__name__)

_RETRY_S: Final = 2.0

Change = Coroutine[Any, Any, None]


class RoleChanges:
    """Event loop only."""

    def __init__(self, start: Callable[[], Awaitable[object]]) -> None:
        self._start = start
        self._change: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._look: asyncio.Event = asyncio.Event()
        self._random = Random()

    def watch(
        self,
        config: BrokerConfig,
        history: Callable[[], EpochHistory],
        step_down: Callable[[NewerMaster], Change],
        register: Callable[[], Awaitable[object]],
    ) -> None:
        """Look for a newer master from now on, until the next change."""
        self._end_watch()
        self._look = asyncio.Event()
        if config.name_servers:
            watching = self._watch(config, history, step_down, register)
            self._watching = asyncio.ensure_future(watching)

    def look(self) -> None:
        """There may be a newer master: look at once."""
        self._look.set()

    def soon(self, change: Change) -> None:
        """Carry out a change in a task of its own, unless one is under way."""
        if self._change is not None and not self._change.done():
            change.close()
            return
        self._end_watch()
        self._change = asyncio.ensure_future(self._carry_out(change))

    async def now(self, change: Change) -> None:
        """Carry out a change and wait for it; its errors are the caller's."""
        if self._change is not None and not self._change.done():
            await asyncio.wait((self._change,))
        self._end_watch()
        await change

    async def stop(self) -> None:
        """No more changes; one that is under way is finished."""
        watching = self._watching
        self._end_watch()
        if watching is not None:
            await asyncio.wait((watching,))
        change = self._change
        if change is not None and change is not asyncio.current_task():
            await asyncio.wait((change,))

    # Inside

    async def _carry_out(self, change: Change) -> None:
        try:
            await change
        except (RmqError, OSError) as error:
            _log.error("the broker is down: %s", error)
        else:
            return
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        while True:
            await asyncio.wait((never,), timeout=_RETRY_S)
            try:
                await self._start()
            except (RmqError, OSError) as error:
                _log.error("the broker cannot start: %s", error)
            else:
                return

    async def _watch(
        self,
        config: BrokerConfig,
        history: Callable[[], EpochHistory],
        step_down: Callable[[NewerMaster], Change],
        register: Callable[[], Awaitable[object]],
    ) -> None:
        while True:
            # Two masters register in turn, and each sees the one that came last: at a moment that
            # has nothing to do with the own registration. The newer one, when it sees the other,
            # takes its place at the name servers back and tells the other to look.
            period_s = config.register_period_ms / 1000 * self._random.uniform(0.3, 1.0)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._look.wait(), period_s)
            self._look.clear()
            if self._watching is not asyncio.current_task():
                # Cancelled in the moment in which the wait was over, which does not hear of it.
                return
            newer = await find_newer_master(config, history(), register)
            if newer is not None and self._watching is asyncio.current_task():
                self._watching = None
                self.soon(step_down(newer))
                return

    def _end_watch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None


def cut_store(config: BrokerConfig, error: LogsDiverged, numbering: Numbering) -> str:
    """Shorten the log of a stopped broker; where the end of it is now."""
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
