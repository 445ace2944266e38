"""Record locks (`fcntl`) of this process."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading

FileKey = tuple[int, int]  # st_dev, st_ino


class RecordLocks:
    """Which file this process has locked, and through which descriptor.

    The kernel grants a record lock to the process, not to the descriptor. This class prevents the
    effects: a second open file of the same process would get the same lock again, and closing any
    descriptor of a locked file (a map holds one, too) would silently release the lock.
    """

    def __init__(self) -> None:
        self._forget_all()
        os.register_at_fork(after_in_child=self._forget_all)

    def _forget_all(self) -> None:
        # A forked child holds none of its parent's locks. A mutex, because files are closed by the
        # thread that opened them.
        self._guard = threading.Lock()
        self._holder: dict[FileKey, int] = {}
        self._parked: dict[FileKey, list[tuple[int, mmap.mmap | None]]] = {}

    def take(self, key: FileKey, descriptor: int) -> bool:
        """Lock byte 0; False when another process or another open file of this one has it."""
        with self._guard:
            if key in self._holder:
                return self._holder[key] == descriptor
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EACCES):
                    return False
                raise
            self._holder[key] = descriptor
            return True

    def close(self, key: FileKey, descriptor: int, mapped: mmap.mmap | None) -> None:
        """Close a descriptor and its map without releasing a lock held through another one."""
        with self._guard:
            if self._holder.get(key, descriptor) != descriptor:
                self._parked.setdefault(key, []).append((descriptor, mapped))
                return
            if mapped is not None:
                mapped.close()
            self._holder.pop(key, None)
            os.close(descriptor)
            for parked, _ in self._parked.pop(key, ()):
                os.close(parked)


# One per process, because the kernel grants these locks to processes.
record_locks = RecordLocks()
