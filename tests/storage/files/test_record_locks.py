"""Record locks belong to the process: descriptors must not lose them for each other."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from broker_core.storage.files.record_locks import RecordLocks

TRY: str = (
    "import fcntl, sys\n"
    "file = open(sys.argv[1], 'r+b')\n"
    "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
)


def is_locked_for_others(path: Path) -> bool:
    done = subprocess.run([sys.executable, "-c", TRY, str(path)], capture_output=True, check=False)
    return done.returncode != 0


def test_a_lock_survives_other_descriptors_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"x")
    locks = RecordLocks()
    first, second = (os.open(path, os.O_RDWR) for _ in range(2))
    status = os.fstat(first)
    key = (status.st_dev, status.st_ino)
    assert locks.take(key, first)
    assert locks.take(key, first), "again by the same descriptor"
    assert not locks.take(key, second), "the kernel would grant it"
    locks.close(key, second, None)
    assert is_locked_for_others(path), "closing a descriptor releases the locks of the process"
    locks.close(key, first, None)
    assert not is_locked_for_others(path)
    for descriptor in (first, second):
        try:
            fcntl.fcntl(descriptor, fcntl.F_GETFD)
        except OSError:
            continue
        raise AssertionError("a descriptor is still open")
