"""Pieces of the log that hold the records of queue units."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker_core.codec.records.record_layout import UNIT
from broker_core.store.reads.log_spans import GAP_MAX, spans_of, unit_bounds

SEGMENT = 1 << 20


class Log:
    """Remembers what is asked of it."""

    def __init__(self) -> None:
        self.segments = SimpleNamespace(size=SEGMENT)
        self.asked: list[tuple[int, int, bool]] = []

    def spans(self, start: int, end: int, *, cold_below: int) -> list[Any]:
        self.asked.append((start, end, cold_below > start))
        return [(start, b"")]


def units(*records: tuple[int, int]) -> bytes:
    return b"".join(UNIT.pack(position, size, 0) for position, size in records)


def asked(*records: tuple[int, int], cold_below: int) -> list[tuple[int, int, bool]]:
    log: Any = Log()
    spans_of(log, units(*records), cold_below)
    return log.asked


def test_recent_records_are_one_piece_of_the_map() -> None:
    assert asked((1_000, 100), (5_000, 100), cold_below=1_000) == [(1_000, 5_100, False)]
    assert asked(cold_below=1_000) == []


def test_old_records_are_read_with_few_calls() -> None:
    near, far = 1_000, 1_000 + 2 * GAP_MAX
    assert asked((0, 100), (near, 100), (far, 100), cold_below=1 << 30) == [
        (0, near + 100, True),
        (far, far + 100, True),
    ]


def test_a_piece_ends_with_its_file() -> None:
    assert asked((SEGMENT - 200, 100), (SEGMENT, 100), cold_below=1 << 30) == [
        (SEGMENT - 200, SEGMENT - 100, True),
        (SEGMENT, SEGMENT + 100, True),
    ]


def test_bounds() -> None:
    starts, ends = unit_bounds(units((5, 10), (100, 1)))
    assert (starts.tolist(), ends.tolist()) == ([5, 100], [15, 101])
