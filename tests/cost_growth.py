"""Measures how a cost grows with its input, without a bound in seconds.

Processor time of this process, the least of several runs, so that other programs hardly matter. The
sizes are far apart and the margin is wide: linear work grows by the same factor as its input,
quadratic work by its square.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

# From the small to the large input; squared it is 1,024.
FACTOR: Final = 32
# Linear work with a constant part grows by less than the factor, and by a few times the factor when
# the large input no longer fits into a cache.
GROWTH_MAX: Final = 8 * FACTOR
_RUNS: Final = 5
# What is shorter than this is repeated: the clock has its grain.
_MEASURED_S: Final = 0.002


def growth(small: Callable[[], object], large: Callable[[], object]) -> float:
    """How many times the cost of `small` is that of `large`."""
    repeats = 1
    while (spent := _spent(small, repeats)) < _MEASURED_S:
        repeats *= 2
    each = min(spent, *(_spent(small, repeats) for _ in range(_RUNS))) / repeats
    return min(_spent(large, 1) for _ in range(_RUNS)) / each


def _spent(work: Callable[[], object], repeats: int) -> float:
    started = time.process_time()
    for _ in range(repeats):
        work()
    return time.process_time() - started
