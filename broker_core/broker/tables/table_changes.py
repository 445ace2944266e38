"""Changes of a table by sends, heartbeats and administrators, coalesced into few writes.

A table is one file. All changes requested before a write begins go into it, and each request is
answered when the write is on disk: a thousand new topics take a few writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Generic

from broker_core.broker.tables.named_table import Entry, NamedTable
from broker_core.broker.tables.write_coalescing import CoalescedWrite
from broker_core.errors import RmqError
from broker_core.runtime.clock import Clock

# Entries to put by name; None deletes.
Changes = Mapping[str, Entry | None]
AfterWrite = Callable[[], object]


class TableChanges(Generic[Entry]):
    """Event loop only."""

    def __init__(self, table: NamedTable[Entry], clock: Clock) -> None:
        self._table = table
        self._writes: CoalescedWrite[Entry | None] = CoalescedWrite(self._write, clock)
        # Names that are only put if they are still missing.
        self._only_new: set[str] = set()
        self._after: list[tuple[AfterWrite, list[Exception]]] = []

    @property
    def write_count(self) -> int:
        """Number of writes so far."""
        return self._writes.write_count

    def coming(self, name: str) -> asyncio.Future[None] | None:
        """Future of a pending change of this name; None without one."""
        return self._writes.coming(name)

    def make(self, entry: Entry) -> asyncio.Future[None]:
        """Put an entry that is missing; the future is done when it is on disk.

        A failed write fails the future, and nothing of that write exists then. The future is shared
        with other callers: shield it in a task that may be cancelled.
        """
        self._table.check_room(entry, len(self._writes))
        self._only_new.add(entry.name)
        return self._writes.add(entry.name, entry)

    async def change(
        self,
        names: Iterable[str],
        changes: Callable[[], Changes[Entry]],
        after: AfterWrite = lambda: None,
    ) -> None:
        """Put and delete, all or nothing; returns when it is on disk.

        `changes` is called once no other change of these names is pending. `after` is called in the
        same turn of the loop in which the table changes.
        """
        names = tuple(names)
        while (coming := next(filter(None, map(self.coming, names)), None)) is not None:
            await asyncio.wait((coming,))
        asked = changes()
        number = len(self._writes)
        for entry in asked.values():
            if entry is not None:
                self._table.check_room(entry, number)
                number += 1
        failures: list[Exception] = []
        self._after.append((after, failures))
        for name, entry in asked.items():
            written = self._writes.add(name, entry)
        await asyncio.shield(written)
        if failures:
            raise failures[0]

    def _write(self, asked: Changes[Entry]) -> None:
        only_new, self._only_new = self._only_new, set()
        after, self._after = self._after, []
        find = self._table.find
        self._table.change(
            {
                name: entry
                for name, entry in asked.items()
                if name not in only_new or find(name) is None
            }
        )
        for call, failures in after:
            try:
                call()
            except (RmqError, OSError) as error:
                # Only the caller of this change gets the error.
                failures.append(error)
