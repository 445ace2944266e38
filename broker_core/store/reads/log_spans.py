"""Reads the pieces of the log that a set of queue units refers to.

Hot ranges come from the map. Cold ones are read with `pread` in as few calls as the gaps between
the records allow, so that a page fault never stalls other users of the map.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from broker_core.codec.records.record_layout import UNIT, UNIT_SIZE
from broker_core.storage.log.commit_log import CommitLog, Span

# Reading a gap this small costs less than another system call.
GAP_MAX = 64 << 10

if TYPE_CHECKING:
    import numpy as np


def unit_bounds(units: bytes | memoryview) -> tuple[np.ndarray, np.ndarray]:
    """Start and end positions of the records that the units name."""
    # Imported on demand: a broker that serves recent messages never needs it.
    import numpy as np

    table = np.frombuffer(units, dtype=[("position", ">i8"), ("size", ">i4"), ("tags", ">i8")])
    starts = table["position"].astype(np.int64)
    return starts, starts + table["size"].astype(np.int64)


def spans_of(log: CommitLog, units: bytes, cold_below: int) -> list[Span]:
    """Pieces that together hold every record, sorted by position."""
    if not units:
        return []
    first = UNIT.unpack_from(units)[0]
    if first >= cold_below:
        last_start, last_size, _ = UNIT.unpack_from(units, len(units) - UNIT_SIZE)
        return log.spans(first, last_start + last_size, cold_below=0)
    starts, ends = unit_bounds(units)
    segment_size = log.segments.size
    far = starts[1:] - ends[:-1] > GAP_MAX
    rolled = starts[1:] // segment_size != starts[:-1] // segment_size
    breaks = (far | rolled).nonzero()[0] + 1
    pieces: list[Span] = []
    bounds = [0, *breaks.tolist(), len(units) // UNIT_SIZE]
    for low, high in itertools.pairwise(bounds):
        start, end = int(starts[low]), int(ends[high - 1])
        if start < end:
            pieces.extend(log.spans(start, end, cold_below=end))
    return pieces
