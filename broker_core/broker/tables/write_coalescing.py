"""Coalesces new entries of one table into one write of its file.

A table is one file; without this, thousands of new entries would write it thousands of times. A
write begins in the next turn of the loop or, while the table is large, after about as long as the
last write took. Entries that are added until then go into the same write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from broker_core.errors import RmqError
from broker_core.runtime.clock import Clock

Entry = TypeVar("Entry")

# Longest delay of a write, however slow the disk is.
COALESCE_S_MAX: Final = 0.1


class CoalescedWrite(Generic[Entry]):
    """Event loop only. `write` stores all given entries, or raises and stores none."""

    def __init__(self, write: Callable[[Mapping[str, Entry]], None], clock: Clock) -> None:
        self._write_all = write
        self._clock = clock
        self._asked: dict[str, Entry] = {}
        self._written: asyncio.Future[None] | None = None
        self._last_write_s = 0.0
        self.write_count = 0

    def __len__(self) -> int:
        return len(self._asked)

    def coming(self, name: str) -> asyncio.Future[None] | None:
        """Future of a pending entry; None without one."""
        return self._written if name in self._asked else None

    def add(self, name: str, entry: Entry) -> asyncio.Future[None]:
        """Add an entry; the future is done when it is on disk, and fails when the write fails.

        It is shared with other callers: shield it in a task that may be cancelled.
        """
        self._asked[name] = entry
        if self._written is None:
            loop = asyncio.get_running_loop()
            self._written = loop.create_future()
            loop.call_later(min(self._last_write_s, COALESCE_S_MAX), self._write)
        return self._written

    def _write(self) -> None:
        asked, self._asked = self._asked, {}
        written, self._written = self._written, None
        assert written is not None
        started_s = self._clock.monotonic()
        self.write_count += 1
        try:
            self._write_all(asked)
        except RmqError as error:
            if not written.done():
                written.set_exception(error)
                # The caller may have been cancelled.
                written.exception()
        else:
            if not written.done():
                written.set_result(None)
        self._last_write_s = self._clock.monotonic() - started_s
