"""Counts and rates of a broker, against a clock that the test moves."""

from __future__ import annotations

import time
from typing import Any

import pytest

from broker_core.broker.tables.broker_stats import (
    ENTRIES_MAX,
    SAMPLE_INTERVAL_MS,
    BrokerStats,
    StoreRates,
    WindowStats,
)
from tests.fakes.manual_clock import ManualClock

SAMPLES_PER_HOUR = 3_600_000 // SAMPLE_INTERVAL_MS


class CountedStore:
    """The counters of `MessageStore.stats` that matter here."""

    def __init__(self) -> None:
        self.put = self.got = self.found = self.missed = 0

    def stats(self) -> dict[str, Any]:
        statuses = {"FOUND": self.found, "OFFSET_OVERFLOW_ONE": self.missed}
        return {
            "put_messages": self.put,
            "get_messages": self.got,
            "get_statuses": {name: count for name, count in statuses.items() if count},
        }


class Sampled:
    """Statistics with the timer that a broker has."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.clock = ManualClock(wall_ms)
        self.store = CountedStore()
        self.stats = BrokerStats(self.clock, self.store.stats)

    def pass_samples(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance(SAMPLE_INTERVAL_MS)
            self.stats.sample()


@pytest.fixture
def broker() -> Sampled:
    return Sampled()


def test_nothing_happened_yet(broker: Sampled) -> None:
    stats = broker.stats
    assert stats.topic_put_tps("T") == 0.0
    assert stats.group_get_tps("G", "T") == 0.0
    assert stats.window_stats("TOPIC_PUT_NUMS", "T") is None
    assert stats.window_stats("NO_SUCH_NAME", "T") is None
    assert stats.window_stats("BROKER_PUT_NUMS", "DefaultCluster") == (WindowStats(),) * 3
    assert stats.store_rates(10) == StoreRates(0.0, 0.0, 0.0, 0.0)
    assert stats.put_days() == stats.get_days() == (0, 0, 0)


def test_counts_since_the_start(broker: Sampled) -> None:
    stats = broker.stats
    stats.put("T", 1, 100)
    stats.put("T", 9, 900)
    stats.put("U", 1, 5)
    stats.got("G", "T", 3, 300)
    stats.send_back("G", "T")
    stats.send_back("G")
    stats.dlq("G", "T")
    assert stats.stats() == {
        "put_messages": 11,
        "put_bytes": 1005,
        "get_messages": 3,
        "get_bytes": 300,
        "topic_put": {
            "T": {"messages": 10, "bytes": 1000, "calls": 2},
            "U": {"messages": 1, "bytes": 5, "calls": 1},
        },
        "group_get": {"T@G": {"messages": 3, "bytes": 300, "calls": 1}},
        "send_back": {"T@G": 1, "G": 1},
        "dlq": {"T@G": 1},
    }


def test_the_first_message_is_no_burst_of_thousands(broker: Sampled) -> None:
    broker.clock.advance(1)
    broker.stats.put("T", 1, 10)
    assert broker.stats.topic_put_tps("T") == 1.0


def test_samples_older_than_a_minute_are_dropped(broker: Sampled) -> None:
    stats = broker.stats
    stats.put("T", 60, 6_000)
    broker.pass_samples(5)
    assert stats.topic_put_tps("T") == pytest.approx(60 / 50)
    stats.put("T", 30, 3_000)
    minute, hour, day = stats.window_stats("TOPIC_PUT_NUMS", "T") or ()
    assert minute == WindowStats(90, pytest.approx(90 / 50), 45.0)
    assert hour.total == day.total == 90
    broker.pass_samples(7)
    minute, hour, day = stats.window_stats("TOPIC_PUT_NUMS", "T") or ()
    assert minute == WindowStats(0, 0.0, 0.0)
    assert hour.total == day.total == 90
    sizes = stats.window_stats("TOPIC_PUT_SIZE", "T") or ()
    assert (sizes[1].total, sizes[1].per_call) == (9_000, 4_500)


def test_an_hour_and_a_day_forget_in_their_turn(broker: Sampled) -> None:
    broker.stats.got("G", "T", 10, 100)
    broker.pass_samples(SAMPLES_PER_HOUR + 2 * 60)
    _, hour, day = broker.stats.window_stats("GROUP_GET_NUMS", "T@G") or ()
    assert (hour.total, day.total) == (0, 10)
    broker.pass_samples(22 * SAMPLES_PER_HOUR)
    broker.stats.got("G", "T", 1, 1)
    broker.pass_samples(3 * SAMPLES_PER_HOUR)
    _, hour, day = broker.stats.window_stats("GROUP_GET_NUMS", "T@G") or ()
    assert (hour.total, day.total) == (0, 1)


def test_entries_that_are_quiet_for_a_day_are_forgotten(broker: Sampled) -> None:
    broker.stats.put("quiet", 1, 1)
    for _ in range(26):
        broker.stats.put("busy", 1, 1)
        broker.pass_samples(SAMPLES_PER_HOUR)
    assert broker.stats.stats()["topic_put"].keys() == {"busy"}
    assert broker.stats.stats()["put_messages"] == 27


def test_a_young_entry_is_measured_from_the_sample_before_it(broker: Sampled) -> None:
    broker.pass_samples(100)
    broker.clock.advance(4_000)
    broker.stats.put("new", 8, 80)
    broker.clock.advance(1_000)
    assert broker.stats.topic_put_tps("new") == pytest.approx(8 / 5)
    broker.pass_samples()
    assert broker.stats.topic_put_tps("new") == pytest.approx(8 / 15)


def test_rates_of_the_store_over_three_windows(broker: Sampled) -> None:
    store = broker.store
    broker.pass_samples(30)
    store.put += 1_000
    broker.pass_samples(3)
    store.put, store.got, store.found, store.missed = store.put + 100, 50, 10, 20
    broker.clock.advance(SAMPLE_INTERVAL_MS)
    stats = broker.stats
    assert stats.store_rates(10) == StoreRates(10.0, 5.0, 1.0, 2.0)
    assert stats.store_rates(60).put_messages == pytest.approx(1_100 / 60)
    # Not ten minutes old yet: what there is counts.
    assert stats.store_rates(600).put_messages == pytest.approx(1_100 / 340)
    broker.pass_samples(200)
    assert stats.store_rates(600) == StoreRates(0.0, 0.0, 0.0, 0.0)


def test_midnights() -> None:
    noon = time.mktime((2024, 3, 5, 12, 0, 0, 0, 0, -1))
    broker = Sampled(int(noon * 1000))
    stats = broker.stats
    stats.put("T", 5, 5)
    stats.got("G", "T", 2, 2)
    broker.pass_samples()
    assert (stats.put_days(), stats.get_days()) == ((0, 0, 5), (0, 0, 2))
    broker.clock.advance(24 * 3_600_000)
    broker.pass_samples()
    stats.put("T", 1, 1)
    assert (stats.put_days(), stats.get_days()) == ((0, 5, 6), (0, 2, 2))
    broker.clock.advance(24 * 3_600_000)
    broker.pass_samples()
    assert stats.put_days() == (5, 6, 6)


def test_deleted_topics_and_groups_are_forgotten(broker: Sampled) -> None:
    stats = broker.stats
    for topic in ("T", "U"):
        stats.put(topic, 1, 1)
        stats.got("G", topic, 1, 1)
        stats.got("H", topic, 1, 1)
        stats.send_back("G", topic)
    stats.remove_topic("T")
    assert stats.stats()["topic_put"].keys() == {"U"}
    assert stats.stats()["group_get"].keys() == {"U@G", "U@H"}
    stats.remove_group("G")
    assert stats.stats()["group_get"].keys() == {"U@H"}
    assert stats.stats()["send_back"] == {}


def test_the_number_of_entries_is_limited(broker: Sampled) -> None:
    for number in range(ENTRIES_MAX + 5):
        broker.stats.put(f"T{number}", 1, 1)
    assert len(broker.stats.stats()["topic_put"]) == ENTRIES_MAX
    assert broker.stats.stats()["put_messages"] == ENTRIES_MAX + 5
