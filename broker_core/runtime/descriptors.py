"""How many descriptors this process may open, and how many of them are kept for files.

A new descriptor is always the smallest number that is free. So one with a high number says that as
many are open, and that costs no look at the table of them.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

# Enough for every connection that a server takes by default, and for many files.
WANTED: Final = 65_536
RESERVE_MIN: Final = 64
RESERVE_MAX: Final = 4_096
# Of this many descriptors one is kept for files.
RESERVE_PART: Final = 8


def raise_descriptor_limit() -> int:
    """Raise the soft limit towards `WANTED` as far as the hard one allows; returns the soft one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return soft
    target = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft < target:
        # Some systems allow less than the hard limit says.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            return target
    return soft


def is_in_reserve(descriptor: int) -> bool:
    """Whether a new socket has one of the last numbers, which are kept for files."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return False
    return descriptor >= soft - reserve_of(soft)


def reserve_of(soft: int) -> int:
    """How many of `soft` descriptors no connection may take."""
    return min(max(soft // RESERVE_PART, RESERVE_MIN), RESERVE_MAX, soft // 2)
