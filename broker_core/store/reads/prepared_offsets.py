"""Walks the log for records whose PREPARED TRANSACTION OFFSET refers to an earlier record.

Such a record is a committed transaction or a delivered delayed message, and proves that the earlier
record needs no further work. Owns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker_core.codec.records.record_layout import (
    HOST_BITS,
    I32,
    I64,
    PREPARED_OFFSET_AT,
    SYS_FLAG_AT,
    UNIT,
    hosts_extra,
)
from broker_core.dispatch.rebuild import LogSlices
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.log.log_walk import NO_DELAYS


def prepared_offsets(log: CommitLog, start: int, until: int) -> Iterator[tuple[int, int]]:
    """(position, prepared offset) of the queued records in `[start, until)` where it is not 0.

    In no particular order within a slice of the log. Raises `CorruptRecord` for a record that
    cannot be read: its prepared offset is unknown.
    """
    for scan in LogSlices(log, start, until, NO_DELAYS):
        for _, units in scan.queues.values():
            yield from _of_units(log, units)


def _of_units(log: CommitLog, units: bytes) -> list[tuple[int, int]]:
    found = []
    segment = log.segments.find(UNIT.unpack_from(units)[0])
    assert segment is not None, "the walk has just read it"
    view, base = segment.view, segment.base
    for position, _, _ in UNIT.iter_unpack(units):
        at = position - base
        sys_flag = I32.unpack_from(view, at + SYS_FLAG_AT)[0]
        if sys_flag & HOST_BITS:
            at += hosts_extra(sys_flag)
        prepared = I64.unpack_from(view, at + PREPARED_OFFSET_AT)[0]
        if prepared:
            found.append((position, prepared))
    return found
