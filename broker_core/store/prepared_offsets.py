"""Walks the log for records that name another one in PREPARED TRANSACTION OFFSET.

Such a record is the outcome of an earlier one: a committed transaction, a delivered delayed
message. Whoever finds it knows that the earlier one is done. Owns nothing.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator

from broker_core.dispatch.rebuild import LogSlices
from broker_core.storage.commit_log import CommitLog
from broker_core.storage.consume_queue import UNIT

_SYS_FLAG = struct.Struct(">i")
_SYS_FLAG_AT = 36
_PREPARED = struct.Struct(">q")
_PREPARED_AT = 76
_BORN_HOST_V6 = 0x10
_STORE_HOST_V6 = 0x20
_V6_GROWTH = 12

# The walk computes due times along the way; nobody looks at them here.
_NO_DELAYS = memoryview(array("q", (0,)))


def prepared_offsets(log: CommitLog, start: int, until: int) -> Iterator[tuple[int, int]]:
    """(position, prepared offset) of the queued records in `[start, until)` where it is not 0.

    In no particular order within a slice of the log. Raises `CorruptRecord` for a record that
    cannot be read: what it would say is unknown.
    """
    for scan in LogSlices(log, start, until, _NO_DELAYS):
        for _, units in scan.queues.values():
            yield from _of_units(log, units)


def _of_units(log: CommitLog, units: bytes) -> list[tuple[int, int]]:
    found = []
    segment = log.segments.find(UNIT.unpack_from(units)[0])
    assert segment is not None, "the walk has just read it"
    view, base = segment.view, segment.base
    for position, _, _ in UNIT.iter_unpack(units):
        at = position - base
        sys_flag = _SYS_FLAG.unpack_from(view, at + _SYS_FLAG_AT)[0]
        if sys_flag & _BORN_HOST_V6:
            at += _V6_GROWTH
        if sys_flag & _STORE_HOST_V6:
            at += _V6_GROWTH
        prepared = _PREPARED.unpack_from(view, at + _PREPARED_AT)[0]
        if prepared:
            found.append((position, prepared))
    return found
