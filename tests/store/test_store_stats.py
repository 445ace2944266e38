"""Counters of a store."""

from __future__ import annotations

from broker_core.protocol_codes import PutStatus
from broker_core.store.store_stats import StoreStats


def test_counts_of_runs() -> None:
    stats = StoreStats()
    a, b = b"a", b"b"
    puts = [(a, 0.01), (a, 0.02), (b, 0.01), (a, 3.0), (a, 0.05), (a, 20_000.0), (b, 0.1), (b, 0.2)]
    for topic, ms in puts:
        stats.put_one(topic, 10, ms)
    assert stats.put_messages == 8
    stats.put_rows([(a, 0), (b, 1), (a, 2), (b"c", 0)], [1, 0, 2, 0], 30, 0.5)
    seen = stats.snapshot()
    assert (seen["put_messages"], seen["put_bytes"]) == (11, 110)
    assert seen["put_statuses"] == {PutStatus.PUT_OK.name: 11}
    assert seen["topic_messages"] == {"a": 8, "b": 3}
    assert seen["put_time_max_ms"] == 20_000.0
    times = {name: count for name, count in seen["put_time_distribution"].items() if count}
    assert times == {"<=0.1ms": 5, "<=1ms": 4, "<=10ms": 1, ">10000ms": 1}
    stats.put_one(b, 5, 0.01)
    assert (stats.put_messages, stats.snapshot()["put_bytes"]) == (12, 115)
