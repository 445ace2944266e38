"""Numbers of messages between two log positions."""

from __future__ import annotations

import pytest

from broker_core.replication.message_counts import MARKS_MAX, MessageCounts


def test_counts() -> None:
    counts = MessageCounts(1_000, 2_000, 10)
    assert [counts.behind(position) for position in (0, 1_000, 1_500, 1_999, 2_000, 9_999)] == [
        10, 10, 5, 1, 0, 0,
    ]  # fmt: skip
    counts.mark(2_500, 1)
    counts.mark(2_500, 1)
    counts.mark(2_600, 100)
    assert counts.behind(2_000) == 100
    assert counts.behind(2_500) == 99
    assert counts.behind(2_599) == 1
    assert counts.behind(1_500) == 105
    for number in range(3 * MARKS_MAX):
        counts.mark(3_000 + number, 101 + number)
    assert len(counts._positions) == len(counts._counts) <= MARKS_MAX
    assert counts.behind(2_600) == pytest.approx(3 * MARKS_MAX, rel=0.05)
    assert counts.behind(1_000) == 3 * MARKS_MAX + 110
    empty = MessageCounts(0, 0, 0)
    assert empty.behind(0) == 0
    empty.mark(500, 5)
    assert empty.behind(0) == 5
