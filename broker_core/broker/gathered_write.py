"""Many new entries of one table with one write of its file.

Whoever asks for an entry waits until it is on disk; everything that is asked for meanwhile goes
into the same write. A table is one file, and thousands of new entries would write it thousands of
times. A write begins as soon as the loop has looked at what came, or, while the table is large,
after about the time that the last one took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from broker_core.errors import RmqError
from broker_core.runtime.clock import Clock

Entry = TypeVar("Entry")

# However slow the disk is, nobody waits for more than this before the write begins.
GATHER_S_MAX: Final = 0.1


class GatheredWrite(Generic[Entry]):
    """Event loop only. `write` stores all entries that it is given, or raises and stores none."""

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
        """Done when an entry that was asked for is on disk; None when nobody has asked for it."""
        return self._written if name in self._asked else None

    def add(self, name: str, entry: Entry) -> asyncio.Future[None]:
        """Ask for an entry; a table that cannot be written fails the future.

        Others wait for the same one: a task that may be cancelled shields it.
        """
        self._asked[name] = entry
        if self._written is None:
            loop = asyncio.get_running_loop()
            self._written = loop.create_future()
            loop.call_later(min(self._last_write_s, GATHER_S_MAX), self._write)
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
                # Whoever asked may have gone.
                written.exception()
        else:
            if not written.done():
                written.set_result(None)
        self._last_write_s = self._clock.monotonic() - started_s
