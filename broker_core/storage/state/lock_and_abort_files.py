"""`lock` (one process per store) and `abort` (present while running, or after a crash)."""

from __future__ import annotations

from broker_core.errors import StoreLocked
from broker_core.storage.files.file_system import FileSystem, StoreFile

LOCK_FILE = "lock"
ABORT_FILE = "abort"


def take_lock(file_system: FileSystem) -> StoreFile:
    """Take the lock that RocketMQ uses; raises `StoreLocked`. Close the file to release it."""
    try:
        file = file_system.create(LOCK_FILE)
    except FileExistsError:
        file = file_system.open(LOCK_FILE)
    _lock(file)
    if file.read(0, 4) != b"lock":
        file.write(0, b"lock")
    return file


def lock_if_present(file_system: FileSystem) -> StoreFile | None:
    """`take_lock` without creating the file: None when there is no lock file, hence no process."""
    if not file_system.exists(LOCK_FILE):
        return None
    file = file_system.open(LOCK_FILE)
    _lock(file)
    return file


def _lock(file: StoreFile) -> None:
    if not file.try_lock():
        file.close()
        raise StoreLocked(
            "another process has this store open; stop it first, or use another directory"
        )


def ended_cleanly(file_system: FileSystem) -> bool:
    """Whether the last run removed its `abort` file."""
    return not file_system.exists(ABORT_FILE)


def mark_running(file_system: FileSystem, process_id: int) -> None:
    """Create the `abort` file, which is left after an unclean stop.

    Only its name matters. The sync also makes the other new names in the root durable.
    """
    try:
        file = file_system.create(ABORT_FILE)
    except FileExistsError:
        file_system.sync_dir("")
        return
    try:
        file.write(0, str(process_id).encode("ascii"))
    finally:
        file.close()
    file_system.sync_dir("")


def mark_stopped(file_system: FileSystem) -> None:
    """Remove the `abort` file; the last step of a clean stop."""
    if file_system.exists(ABORT_FILE):
        file_system.unlink(ABORT_FILE)
        file_system.sync_dir("")
