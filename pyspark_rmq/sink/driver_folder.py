"""The folder of this user on the driver's machine, for files that outlive a driver process.

<temporary directory>/pyspark-rmq-<uid>/   mode 0700
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def driver_folder(*, create: bool) -> Path | None:
    """None if there is none, or if its name is taken by another user; raises `OSError`."""
    folder = Path(tempfile.gettempdir()) / f"pyspark-rmq-{os.getuid()}"
    if create:
        folder.mkdir(mode=0o700, exist_ok=True)
    elif not folder.exists():
        return None
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return None
    return folder


def remove_oldest(folder: Path, count_max: int) -> None:
    """Remove the JSON files that were not used for longest."""
    ages = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            ages.append((path.stat().st_mtime, path))
    for _, path in sorted(ages)[:-count_max]:
        path.unlink(missing_ok=True)
