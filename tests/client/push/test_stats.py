"""Counts of a push consumer, as administrators read them."""

from __future__ import annotations

import pytest

from broker_core.client.push.stats import ConsumeStats
from tests.fakes.manual_clock import ManualClock


def test_rates_and_times_by_topic() -> None:
    clock = ManualClock()
    stats = ConsumeStats(clock)
    assert stats.started_ms == clock.wall_ms()
    stats.consumed("T", done=6, failed=2, seconds=0.4)
    stats.pulled("T", 8, seconds=0.1)
    stats.pulled("T", 2, seconds=0.3)
    stats.consumed("U", done=1, failed=0, seconds=0.0)
    clock.advance(2_000)
    found = stats.table()
    assert set(found) == {"T", "U"}
    assert found["T"]["consumeFailedMsgs"] == 2
    assert found["T"]["consumeOKTPS"] == pytest.approx(3.0)
    assert found["T"]["consumeFailedTPS"] == pytest.approx(1.0)
    assert found["T"]["consumeRT"] == pytest.approx(50.0)
    assert found["T"]["pullRT"] == pytest.approx(200.0)
    assert found["T"]["pullTPS"] == pytest.approx(5.0)
    assert found["U"]["pullRT"] == 0


def test_nothing_is_divided_by_no_time() -> None:
    stats = ConsumeStats(ManualClock())
    stats.pulled("T", 1, seconds=0.0)
    assert stats.table()["T"]["pullTPS"] > 0
