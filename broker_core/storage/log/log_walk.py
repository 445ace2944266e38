"""Walks the log record by record in bounded steps: what recovery and dispatch share.

Owns nothing. A step stays inside one file and hands blank records, slices and group headers to the
caller in one form.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Final, NamedTuple

from broker_core.codec.native import scan_records
from broker_core.codec.records.record_layout import (
    BODY_LENGTH_AT,
    I32,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    SIZE_AND_MAGIC,
    SYS_FLAG_AT,
    hosts_extra,
)
from broker_core.codec.records.record_scan import STOP_BLANK, STOP_INVALID, STOP_LIMIT, Scan
from broker_core.storage.log.append_group import GROUP_TOPIC, GroupHeader, decode_header
from broker_core.storage.log.segment_file import Segment
from broker_core.storage.log.segment_sequence import SegmentSequence

MAGICS = frozenset((MAGIC_V1, MAGIC_V2))
SLICE_SIZE: Final = 8 << 20
NO_DELAYS: Final = memoryview(array("q", (0,)))
"""Delay levels for walks whose caller does not use tag codes, which hold the due times."""
KEPT_SIZE_MAX: Final = 64 << 20

# Approximate size of a queue's entry in a scan, besides its units.
_QUEUE_OVERHEAD = 200


class Step(NamedTuple):
    """Records `[start, end)`; `ended`: the walk cannot continue from `end`, for `reason`."""

    start: int
    end: int
    scan: Scan | None
    ended: bool
    reason: str


class KeptSteps:
    """Steps of a walk, kept so that these records need not be walked again.

    Bounded, because the log may be large. Steps that do not fit are dropped, and their records are
    walked again.
    """

    def __init__(self, size_max: int = KEPT_SIZE_MAX) -> None:
        self._steps: deque[tuple[Step, int]] = deque()
        self._room = size_max

    @property
    def is_full(self) -> bool:
        """Whether further steps are dropped for now."""
        return self._room <= 0

    def add(self, step: Step) -> None:
        """Append a step."""
        if step.scan is None or self.is_full:
            return
        size = sum(len(data) + _QUEUE_OVERHEAD for _, data in step.scan.queues.values())
        size += len(step.scan.keys)
        self._room -= size
        self._steps.append((step, size))

    def take(self, position: int, limit: int) -> Step | None:
        """Remove and return the cached step from `position` to at most `limit`, if there is one."""
        self._forget_before(position)
        if not self._steps:
            return None
        step, _ = self._steps[0]
        if step.start != position or step.end > limit:
            return None
        self._drop_first()
        return step

    def bound(self, position: int, limit: int) -> int:
        """The end of a walk from `position` towards `limit`, before the next cached step."""
        for step, _ in self._steps:
            if step.start > position:
                return min(step.start, limit)
        return limit

    def forget_from(self, position: int) -> None:
        """Drop the steps from this position on."""
        while self._steps and self._steps[-1][0].start >= position:
            _, size = self._steps.pop()
            self._room += size

    def _forget_before(self, position: int) -> None:
        while self._steps and self._steps[0][0].start < position:
            self._drop_first()

    def _drop_first(self) -> None:
        _, size = self._steps.popleft()
        self._room += size


def walk_step(
    segments: SegmentSequence,
    position: int,
    limit: int,
    *,
    check_crc: int,
    delays: memoryview,
    slice_size: int = SLICE_SIZE,
    index_tags: bool = False,
) -> Step:
    """Scan from `position` towards `limit`, at most about `slice_size` bytes."""
    segment = segments.find(position)
    if segment is None or position >= limit:
        return Step(position, position, None, True, "")
    start = position - segment.base
    readable = min(segment.committed, limit - segment.base)
    for stop_at in (min(readable, start + slice_size), readable):
        scan = scan_records(
            segment.view, start, stop_at, position, check_crc, delays, GROUP_TOPIC, index_tags
        )
        # A slice may cut a record; only a scan without any record needs the whole range.
        if scan.count or scan.stop in (STOP_LIMIT, STOP_BLANK) or stop_at == readable:
            break
    end = segment.base + scan.end
    if scan.stop == STOP_BLANK:
        if segment.base + segment.size > limit:
            # A slave's copy whose blank record is incomplete.
            return Step(position, end, scan, True, "")
        return Step(position, segment.base + segment.size, scan, False, "")
    ended = scan.count == 0 or end == limit
    reason = scan.reason if scan.stop == STOP_INVALID and scan.count == 0 else ""
    return Step(position, end, scan, ended, reason)


def is_cut_short(segments: SegmentSequence, position: int, limit: int) -> bool:
    """Whether the bytes of `[position, limit)` are an incomplete record."""
    segment = segments.find(position)
    rest = limit - position
    if segment is None or rest < SIZE_AND_MAGIC.size:
        return True
    size, magic = SIZE_AND_MAGIC.unpack_from(segment.view, position - segment.base)
    return magic in MAGICS and size >= RECORD_SIZE_MIN and size > rest


def group_header_at(segments: SegmentSequence, position: int) -> GroupHeader | None:
    """The header of the append group that starts at `position`, if one does.

    Checks lengths only; the scan that follows checks the record itself. Raises
    `MalformedRecord` for a record of the group topic that is not a header.
    """
    segment = segments.find(position)
    if segment is None:
        return None
    return _header_in(segment, position)


def _header_in(segment: Segment, position: int) -> GroupHeader | None:
    start = position - segment.base
    rest = segment.committed - start
    if rest < RECORD_SIZE_MIN:
        return None
    view = segment.view
    size, magic = SIZE_AND_MAGIC.unpack_from(view, start)
    if magic not in MAGICS or not RECORD_SIZE_MIN <= size <= rest:
        return None
    sys_flag = I32.unpack_from(view, start + SYS_FLAG_AT)[0]
    body_length_at = start + BODY_LENGTH_AT + hosts_extra(sys_flag)
    body_length = I32.unpack_from(view, body_length_at)[0]
    body_at = body_length_at + 4
    topic_at = body_at + body_length + 1
    if body_length < 0 or topic_at + len(GROUP_TOPIC) > start + size:
        return None
    if view[topic_at - 1] != len(GROUP_TOPIC):
        return None
    if view[topic_at : topic_at + len(GROUP_TOPIC)] != GROUP_TOPIC:
        return None
    return decode_header(bytes(view[body_at : body_at + body_length]), position)
