"""Staging files that have served and wait for their next writer.

    staging/spare-{number}

Every page of a new file has to be found, and every block; when the file goes, they are given back.
Where memory or blocks are slow to come by, as on virtual machines, that costs more than the rows
themselves. A file that is written over has both. Its old bytes are no danger: what is staged is
known by size, count and checksum. Spares that nobody wants for a minute are removed.
"""

from __future__ import annotations

import contextlib
import re
from typing import Final

from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import Worker
from broker_core.storage.file_system import FileSystem, StoreFile

IDLE_S: Final = 60.0

_NAME: Final = re.compile(r"spare-([0-9]{1,18})")


class SpareFiles:
    """Owner thread only; `worker` removes files, which takes its time."""

    def __init__(
        self, file_system: FileSystem, directory: str, clock: Clock, worker: Worker, size_max: int
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._clock = clock
        self._worker = worker
        self._size_max = size_max
        # Number -> size and since when it waits; the one that came last is taken first.
        self._files: dict[int, tuple[int, float]] = {}
        self._next = 0
        self.size = 0
        """Bytes of all of them."""
        for name in file_system.list(directory):
            if found := _NAME.fullmatch(name):
                # Of an earlier run.
                file = file_system.open(f"{directory}/{name}", writable=False)
                self._add(int(found[1]), file.size)
                file.close()

    def __len__(self) -> int:
        return len(self._files)

    def take(self, path: str) -> StoreFile | None:
        """A spare under its new name; None when there is none."""
        if not self._files:
            return None
        number, (size, _) = self._files.popitem()
        self.size -= size
        spare = self._path(number)
        try:
            self._file_system.rename(spare, path)
            return self._file_system.open(path)
        except OSError:
            # Somebody took it away, or nothing can be opened: a new file will say so.
            self._remove(spare)
            self._remove(path)
            return None

    def put(self, path: str, size: int) -> bool:
        """Keep a file that nobody has open; False when there are enough."""
        if self.size + size > self._size_max:
            return False
        try:
            self._file_system.rename(path, self._path(self._next))
        except OSError:
            return False
        self._add(self._next, size)
        return True

    def expire(self) -> None:
        """Remove those that nobody wanted for a while."""
        limit = self._clock.monotonic() - IDLE_S
        self._drop([number for number, (_, since) in self._files.items() if since < limit])

    def clear(self) -> None:
        """Remove all: their room is needed."""
        self._drop(list(self._files))

    def close(self) -> None:
        """Remove all here and now."""
        for number in self._files:
            with contextlib.suppress(OSError):
                self._file_system.unlink(self._path(number))
        self._files.clear()
        self.size = 0

    def _add(self, number: int, size: int) -> None:
        self._files[number] = size, self._clock.monotonic()
        self._next = max(self._next, number + 1)
        self.size += size

    def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            self.size -= self._files.pop(number)[0]
            self._remove(self._path(number))

    def _remove(self, path: str) -> None:
        def unlink() -> None:
            # One that stays is found at the next start.
            with contextlib.suppress(OSError):
                self._file_system.unlink(path)

        self._worker.submit(unlink, lambda _, _error: None)

    def _path(self, number: int) -> str:
        return f"{self._directory}/spare-{number}"
