"""Spare files: staging files of published batches, kept for the next writer.

    staging/spare-{number}

A new file needs new pages and disk blocks, which are freed again when it is removed. Where
allocation is slow, as on virtual machines, that costs more than writing the rows. A reused file has
both. Its old bytes are harmless: a part is identified by size, count and checksum. Spare files are
removed after a minute without use.
"""

from __future__ import annotations

import contextlib
import logging
import re
from typing import Final

from broker_core.errors import StoreUnusable
from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import Worker
from broker_core.storage.files.file_system import FileSystem, StoreFile

_log = logging.getLogger(__name__)

IDLE_S: Final = 60.0

_NAME: Final = re.compile(r"spare-([0-9]{1,18})")


def size_of_regular(file_system: FileSystem, path: str) -> int | None:
    """Size of a file that an earlier process left; None if it is of another kind.

    Something else under such a name must not keep the store from starting, and is left alone.
    """
    try:
        file = file_system.open(path, writable=False)
    except (StoreUnusable, IsADirectoryError) as error:
        _log.warning("%s is ignored: %s", path, error)
        return None
    try:
        return file.size
    finally:
        file.close()


class StagingFileReuse:
    """Owner thread only; `worker` removes files, which takes time."""

    def __init__(
        self, file_system: FileSystem, directory: str, clock: Clock, worker: Worker, size_max: int
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._clock = clock
        self._worker = worker
        self._size_max = size_max
        # Number -> size and time of `put`; the last one is taken first.
        self._files: dict[int, tuple[int, float]] = {}
        self._next = 0
        self.size = 0
        """Bytes of all spare files."""
        for name in file_system.list(directory):
            if found := _NAME.fullmatch(name):
                # Left by an earlier process.
                size = size_of_regular(file_system, f"{directory}/{name}")
                if size is not None:
                    self._add(int(found[1]), size)
                else:
                    self._next = max(self._next, int(found[1]) + 1)

    def __len__(self) -> int:
        return len(self._files)

    def take(self, path: str) -> StoreFile | None:
        """A spare file, renamed to `path`; None if there is none."""
        if not self._files:
            return None
        number, (size, _) = self._files.popitem()
        self.size -= size
        spare = self._path(number)
        try:
            # Another kind of file must not get the name of a draft.
            self._file_system.open(spare).close()
            self._file_system.rename(spare, path)
            return self._file_system.open(path)
        except (OSError, StoreUnusable):
            # Removed or replaced by another process, or out of descriptors: the caller creates a
            # new file.
            self._remove(spare)
            # Not on the worker: the caller creates a file of this name next.
            with contextlib.suppress(OSError):
                self._file_system.unlink(path)
            return None

    def put(self, path: str, size: int) -> bool:
        """Keep a closed file; False if the limit is reached or the rename fails."""
        if self.size + size > self._size_max:
            return False
        try:
            self._file_system.rename(path, self._path(self._next))
        except OSError:
            return False
        self._add(self._next, size)
        return True

    def expire(self) -> None:
        """Remove files that were not used for `IDLE_S` seconds."""
        limit = self._clock.monotonic() - IDLE_S
        self._drop([number for number, (_, since) in self._files.items() if since < limit])

    def clear(self) -> None:
        """Remove all, on the worker."""
        self._drop(list(self._files))

    def close(self) -> None:
        """Remove all, before this returns."""
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
            # If that fails, the next start finds the file.
            with contextlib.suppress(OSError):
                self._file_system.unlink(path)

        self._worker.submit(unlink, lambda _, _error: None)

    def _path(self, number: int) -> str:
        return f"{self._directory}/spare-{number}"
