"""Has the C library keep the memory of large buffers instead of returning it after each use.

By default it gives every buffer of a megabyte back to the system as soon as it is freed, and gets
it back page by page, zeroed: a third of the processor time of whoever moves batches of messages.
"""

from __future__ import annotations

import importlib
import os
from typing import Final

# Buffers up to this size are kept, and this much of free memory in all.
KEPT_BUFFER_SIZE: Final = 16 << 20
KEPT_SIZE: Final = 64 << 20
_SETTINGS: Final = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


def keep_freed_memory() -> bool:
    """For the whole process; whether that is possible, and nobody has set it otherwise."""
    if any(name in os.environ for name in _SETTINGS):
        return False
    try:
        lanes = importlib.import_module("broker_core.runtime._system_lane")
    except ImportError:
        return False
    return bool(lanes.keep_memory(KEPT_BUFFER_SIZE, KEPT_SIZE))
