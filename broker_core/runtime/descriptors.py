"""The limit of file descriptors, and how many are reserved for files.

A new descriptor always gets the smallest free number, so its number shows how many are open.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

# Enough for all connections that a server accepts by default, and for many files.
WANTED: Final = 65_536
RESERVE_MIN: Final = 64
RESERVE_MAX: Final = 4_096
# One in this many descriptors is reserved for files.
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
    """Whether a new socket has a number that is reserved for files."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return False
    return descriptor >= soft - reserve_of(soft)


def reserve_of(soft: int) -> int:
    """How many of `soft` descriptors are reserved for files."""
    return min(max(soft // RESERVE_PART, RESERVE_MIN), RESERVE_MAX, soft // 2)
