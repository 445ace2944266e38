"""The folder of this user on the driver's machine, for files that outlive a driver process.

<temporary directory>/pyspark-rmq-<uid>/   mode 0700
"""

from __future__ import annotations

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
