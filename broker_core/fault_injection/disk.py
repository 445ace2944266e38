"""Faults of a disk: slow syncs, failing syncs, no room.

The files are real. Without an active fault they behave as `PosixFile` does.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

from broker_core.storage.files.file_system import DiskUsage
from broker_core.storage.files.posix_file_system import PosixFile, PosixFileSystem
from broker_core.storage.files.record_locks import FileKey
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR


def _pass() -> None:
    """Called at a sync without a watch; does nothing."""


class DiskFaults:
    """The active faults of the disk. Set on the event loop, read on every thread."""

    def __init__(self) -> None:
        self.is_full = False
        self.fails_syncs = False
        self.has_failed = False
        """Whether a sync has failed, which is final for the store that is open."""
        self.before_sync: Callable[[], None] = _pass
        self.after_sync: Callable[[], None] = _pass
        self._sync_delay_s = 0.0
        # Releases delayed syncs at the end of the fault.
        self._released = threading.Event()

    def delay_syncs(self, seconds: float) -> None:
        """Make each sync take longer; 0 ends the delay, also for syncs under way."""
        self._sync_delay_s = seconds
        if seconds:
            self._released = threading.Event()
        else:
            self._released.set()

    def watch_syncs(
        self, before: Callable[[], None] | None, after: Callable[[], None] | None
    ) -> None:
        """Call something before and after each sync of messages; None: nothing."""
        self.before_sync = before or _pass
        self.after_sync = after or _pass

    @property
    def concerns_syncs(self) -> bool:
        """Whether syncs must go through `FaultyFile.sync`."""
        return bool(
            self.fails_syncs
            or self._sync_delay_s
            or self.before_sync is not _pass
            or self.after_sync is not _pass
        )

    def sync(self, path: str, sync: Callable[[], None], *, has_messages: bool) -> None:
        """Sync one file, with the active faults."""
        if has_messages:
            self.before_sync()
        if self._sync_delay_s:
            self._released.wait(self._sync_delay_s)
        if self.fails_syncs:
            self.has_failed = True
            raise OSError(errno.EIO, "failing_sync: a fault on purpose", path)
        sync()
        if has_messages:
            self.after_sync()

    def check_room(self, path: str) -> None:
        """Raise what a full disk raises."""
        if self.is_full:
            raise OSError(errno.ENOSPC, "full_disk: a fault on purpose", path)


class FaultyFile(PosixFile):
    """One file on a disk with faults."""

    __slots__ = ("_faults", "_is_empty")

    def __init__(
        self,
        faults: DiskFaults,
        path: str,
        full_path: str,
        descriptor: int,
        key: FileKey,
        writable: bool,
    ) -> None:
        super().__init__(path, full_path, descriptor, key, writable)
        self._faults = faults
        # The first sync of a new file of the log makes its blocks durable, before any message.
        self._is_empty = False

    def sync(self) -> None:
        """Make content and length durable; fails or waits as the faults say."""
        if self._faults.concerns_syncs:
            is_log = self.path.startswith(f"{COMMIT_LOG_DIR}/")
            has_messages = is_log and not self._is_empty
            self._faults.sync(self.path, super().sync, has_messages=has_messages)
        else:
            super().sync()
        self._is_empty = False

    @property
    def sync_descriptor(self) -> int:
        """None while syncs have to be made one by one."""
        return -1 if self._faults.concerns_syncs else super().sync_descriptor

    def write(self, start: int, data: bytes | bytearray | memoryview) -> None:
        """A full disk takes only bytes that the file has room for already."""
        if self._faults.is_full and start + len(data) > self.size:
            self._faults.check_room(self.path)
        super().write(start, data)

    def allocate(self, start: int, size: int) -> None:
        """A full disk has no more blocks."""
        self._faults.check_room(self.path)
        super().allocate(start, size)
        self._is_empty = True


class FaultyFileSystem(PosixFileSystem):
    """The files of one store, on a disk with faults."""

    def __init__(self, faults: DiskFaults, root: str) -> None:
        super().__init__(root, make_file=self._faulty)
        self._faults = faults

    def usage(self) -> DiskUsage:
        """Everything is used while the disk is full."""
        found = super().usage()
        return DiskUsage(found.used + found.usable, 0) if self._faults.is_full else found

    def _faulty(
        self, path: str, full_path: str, descriptor: int, key: FileKey, writable: bool
    ) -> FaultyFile:
        return FaultyFile(self._faults, path, full_path, descriptor, key, writable)
