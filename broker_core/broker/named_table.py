"""A table of this broker by name, in memory and in one file of `config/`: topics, groups.

Owned by the event loop. A change is on disk before it can be seen or acknowledged; one that cannot
be written is undone and raises `DiskFailed`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from broker_core.codec.topic_config import DataVersion
from broker_core.errors import InvalidArgument, StoreUnusable
from broker_core.runtime.clock import Clock
from broker_core.storage.json_table import JsonTable

_log = logging.getLogger(__name__)


class Named(Protocol):
    """What a table holds: plain values that can be compared."""

    @property
    def name(self) -> str:
        """Under which it is found."""


Entry = TypeVar("Entry", bound=Named)


class NamedTable(ABC, Generic[Entry]):
    """`path` is where `table` keeps it, for messages."""

    def __init__(self, table: JsonTable, clock: Clock, path: str) -> None:
        self._table = table
        self._clock = clock
        self._path = path
        self._entries: dict[str, Entry] = {}
        self._version = DataVersion()

    # Looking

    def find(self, name: str) -> Entry | None:
        """The one of that name."""
        return self._entries.get(name)

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self._entries)

    def all(self) -> list[Entry]:
        """All of them, sorted by name."""
        return [self._entries[name] for name in sorted(self._entries)]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def version(self) -> DataVersion:
        """Which state of the table this is; changes with every change."""
        return self._version

    # Changing

    def put(self, entry: Entry) -> Entry:
        """Make one or replace its settings; returns what the table holds now."""
        self.change({entry.name: entry})
        return entry

    def put_all(self, entries: Iterable[Entry]) -> None:
        """`put` each with one write: all of them, or none when one is wrong or the disk fails."""
        self.change({entry.name: entry for entry in entries})

    def delete(self, name: str) -> bool:
        """Forget one; False when there is none. What hangs on it is the caller's business."""
        is_there = name in self._entries
        self.change({name: None})
        return is_there

    def change(self, changes: Mapping[str, Entry | None]) -> None:
        """Put entries and delete those of which there is None, with one write: all or nothing."""
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
        """Refuse one that cannot be put, also when `coming` others are made before it."""

    @abstractmethod
    def save(self) -> None:
        """Write the table; changes do so by themselves."""

    # Inside

    @abstractmethod
    def _take(self, stored: dict[str, Any]) -> None:
        """Become what the file says; raises `InvalidArgument`."""

    def _changed(self, changed: list[Entry], before: Mapping[str, Entry | None]) -> None:
        """A change is on disk."""

    def _commit(self, before: Mapping[str, Entry | None], changed: list[Entry]) -> None:
        """Write what was changed, or undo it."""
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
        """Take what the file has; whether there is one."""
        stored = self._table.load()
        if stored is None:
            return False
        try:
            self._take(stored)
        except InvalidArgument as error:
            raise StoreUnusable(f"{self._path}: {error}. Repair the file") from error
        return True

    def _enter(self, entries: Iterable[Entry], problem_of: Callable[[str], str | None]) -> None:
        """Entries of the file; whoever wrote it may have other rules for names."""
        for entry in entries:
            problem = problem_of(entry.name)
            if problem is not None:
                _log.warning("%s: %r is left out: %s", self._path, entry.name[:80], problem)
                continue
            self._entries[entry.name] = entry
