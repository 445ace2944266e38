"""Makes the C library keep freed large buffers instead of returning them to the system.

By default it unmaps every buffer of a megabyte when it is freed; page faults on the next allocation
then cost a third of the processor time when moving batches of messages.
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
    """For the whole process. Returns False if unsupported or overridden by the environment."""
    if any(name in os.environ for name in _SETTINGS):
        return False
    try:
        lanes = importlib.import_module("broker_core.runtime._system_lane")
    except ImportError:
        return False
    return bool(lanes.keep_memory(KEPT_BUFFER_SIZE, KEPT_SIZE))
