"""Changes of a table that clients ask for: made by sends and heartbeats, or ordered by tools.

A table is one file. Whatever is asked for while a write is being prepared goes into that write, and
everybody is answered when it is on disk: a thousand topics are a few writes, whoever makes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Generic

from broker_core.broker.gathered_write import GatheredWrite
from broker_core.broker.named_table import Entry, NamedTable
from broker_core.errors import RmqError
from broker_core.runtime.clock import Clock

# What is to be put, by name; None is to be deleted.
Changes = Mapping[str, Entry | None]
AfterWrite = Callable[[], object]


class TableChanges(Generic[Entry]):
    """Event loop only."""

    def __init__(self, table: NamedTable[Entry], clock: Clock) -> None:
        self._table = table
        self._writes: GatheredWrite[Entry | None] = GatheredWrite(self._write, clock)
        # Names that are only to be put if nobody else did so meanwhile.
        self._only_new: set[str] = set()
        self._after: list[tuple[AfterWrite, list[Exception]]] = []

    @property
    def write_count(self) -> int:
        """How often the table was written for them."""
        return self._writes.write_count

    def coming(self, name: str) -> asyncio.Future[None] | None:
        """Done when a change of this name is on disk; None when none is on its way."""
        return self._writes.coming(name)

    def make(self, entry: Entry) -> asyncio.Future[None]:
        """Put an entry that is missing; the future is done when it is on disk.

        A table that cannot be written fails the future, and nothing of that write exists then.
        Others wait for the same one: a task that may be cancelled shields it.
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

        `changes` is asked once no other change of these names is on its way. `after` is called in
        the very turn in which the table changes, before anybody can see that.
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
                # Whoever asked is told, and nobody else.
                failures.append(error)
