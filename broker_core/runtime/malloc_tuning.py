"""Makes the C library keep freed large buffers instead of returning them to the system.

By default it unmaps every buffer of a megabyte when it is freed; page faults on the next allocation
then cost a third of the processor time when moving batches of messages.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Final

# Buffers up to this size are kept, and this much of free memory in all.
KEPT_BUFFER_SIZE: Final = 16 << 20
KEPT_SIZE: Final = 64 << 20
_SETTINGS: Final = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


def keep_freed_memory() -> bool:
    """For the whole process. Returns False if unsupported or overridden by the environment."""
    if any(name in os.environ for name in _SETTINGS):
        return False
    lanes = _native_module()
    return lanes is not None and bool(lanes.keep_memory(KEPT_BUFFER_SIZE, KEPT_SIZE))


def return_free_memory() -> bool:
    """Return what is free now, such as what imports have used, to the system.

    Returns False if unsupported or if nothing was free. What is freed later is kept.
    """
    lanes = _native_module()
    return lanes is not None and bool(lanes.return_memory())


def _native_module() -> ModuleType | None:
    try:
        return importlib.import_module("broker_core.runtime._system_lane")
    except ImportError:
        return None
