"""A table of this broker by name, in memory and in one file of `config/`: topics, groups.

Owned by the event loop. A change is on disk before it can be seen or acknowledged; one that cannot
be written is undone and raises `DiskFailed`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from broker_core.codec.wire.bodies.topic_config import DataVersion
from broker_core.errors import InvalidArgument, StoreUnusable
from broker_core.runtime.clock import Clock
from broker_core.storage.files.json_table import JsonTable

_log = logging.getLogger(__name__)


class Named(Protocol):
    """An entry of a table: a plain, comparable value."""

    @property
    def name(self) -> str:
        """Its key in the table."""


Entry = TypeVar("Entry", bound=Named)


class NamedTable(ABC, Generic[Entry]):
    """`path` is the file of `table`, for error messages."""

    def __init__(self, table: JsonTable, clock: Clock, path: str) -> None:
        self._table = table
        self._clock = clock
        self._path = path
        self._entries: dict[str, Entry] = {}
        self._version = DataVersion()

    # Queries

    def find(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self._entries)

    def all(self) -> list[Entry]:
        """All entries, sorted by name."""
        return [self._entries[name] for name in sorted(self._entries)]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def version(self) -> DataVersion:
        """Data version; changes with every change."""
        return self._version

    # Changes

    def put(self, entry: Entry) -> Entry:
        """Add or replace an entry; returns the stored one."""
        self.change({entry.name: entry})
        return entry

    def delete(self, name: str) -> bool:
        """Delete an entry; False when there is none. Dependent data is up to the caller."""
        is_there = name in self._entries
        self.change({name: None})
        return is_there

    def change(self, changes: Mapping[str, Entry | None]) -> None:
        """Put entries, delete those that are None, with one write: all or nothing."""
        entries = self._entries
        before = {
            name: entries.get(name) for name, entry in changes.items() if entries.get(name) != entry
        }
        changed = [entry for name in before if (entry := changes[name]) is not None]
        new = 0
        for entry in changed:
            self.check_room(entry, new)
            new += entry.name not in entries
        for name in before:
            if (entry := changes[name]) is not None:
                entries[name] = entry
            else:
                del entries[name]
        if before:
            self._commit(before, changed)

    @abstractmethod
    def check_room(self, entry: Entry, coming: int = 0) -> None:
        """Raise if the table has no room for an entry after `coming` others."""

    @abstractmethod
    def save(self) -> None:
        """Write the table. Changes do so themselves."""

    @abstractmethod
    def _take(self, stored: dict[str, Any]) -> None:
        """Load the content of the file; raises `InvalidArgument`."""

    def _changed(self, changed: list[Entry], before: Mapping[str, Entry | None]) -> None:
        """Called when a change is on disk."""

    def _commit(self, before: Mapping[str, Entry | None], changed: list[Entry]) -> None:
        """Write the change, or undo it."""
        version = self._version
        self._version = self._next_version()
        try:
            self.save()
        except BaseException:
            self._version = version
            for name, entry in before.items():
                if entry is None:
                    self._entries.pop(name, None)
                else:
                    self._entries[name] = entry
            raise
        self._changed(changed, before)

    def _next_version(self) -> DataVersion:
        return DataVersion(self._version.counter + 1, 0, self._clock.wall_ms())

    def _stored(self) -> bool:
        """Load the file; False when there is none."""
        stored = self._table.load()
        if stored is None:
            return False
        try:
            self._take(stored)
        except InvalidArgument as error:
            raise StoreUnusable(f"{self._path}: {error}. Repair the file") from error
        return True

    def _enter(self, entries: Iterable[Entry], problem_of: Callable[[str], str | None]) -> None:
        """Add the entries of the file, without names of another broker that are invalid here."""
        for entry in entries:
            problem = problem_of(entry.name)
            if problem is not None:
                _log.warning("%s: %r is ignored: %s", self._path, entry.name[:80], problem)
                continue
            self._entries[entry.name] = entry
