"""Queue offsets and store times of appends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker_core.store.writes.queue_counters import QueueCounters

A, B = (b"T", 0), (b"T", 1)


def counters() -> QueueCounters:
    queues: Any = [SimpleNamespace(key=A, max_offset=5)]
    return QueueCounters(queues, 1_000)


def test_offsets_go_on_where_the_queues_end() -> None:
    found = counters()
    offsets = found.next_offsets((A, B))
    assert list(offsets) == [5, 0]
    offsets[0] += 2
    offsets[1] += 1
    assert list(found.next_offsets((A, B))) == [5, 0], "not before the append has succeeded"
    found.advance((A, B), offsets)
    assert list(found.next_offsets((A, B))) == [7, 1]


def test_an_append_that_is_taken_back() -> None:
    found = counters()
    before = {key: found.next.get(key) for key in (A, B)}
    offsets = found.next_offsets((A, B))
    offsets[0] += 1
    offsets[1] += 1
    found.advance((A, B), offsets)
    found.restore(before)
    assert found.next == {A: 5}


def test_store_times_never_decrease() -> None:
    found = counters()
    assert [found.stamp(ms) for ms in (999, 1_001, 500, 1_002)] == [1_000, 1_001, 1_001, 1_002]
