"""Which level a retry waits at, and when a message is a dead letter."""

from __future__ import annotations

import pytest

from broker_core.broker.retry_policy import resend_is_dead, retry_level, times_max
from broker_core.config import DELAY_LEVELS, delay_levels_ms


def test_sixteen_retries_from_ten_seconds_to_two_hours() -> None:
    levels = [retry_level(times, 16, 0) for times in range(17)]
    assert levels == [*range(3, 19), None]
    delays = delay_levels_ms(DELAY_LEVELS)
    assert (delays[levels[0] - 1], delays[levels[15] - 1]) == (10_000, 7_200_000)  # type: ignore


@pytest.mark.parametrize(
    ("times", "limit", "asked", "level"),
    [
        (0, 16, 1, 1), (5, 16, 30, 30), (0, 16, -1, None), (0, 0, 5, None), (3, 3, 1, None),
        (2, 3, 1, 1), (100, 1_000, 0, 103),
    ],
)  # fmt: skip
def test_retry_level(times: int, limit: int, asked: int, level: int | None) -> None:
    assert retry_level(times, limit, asked) == level


@pytest.mark.parametrize(
    ("group", "asked", "limit"),
    [(16, None, 16), (16, 3, 3), (16, 0, 0), (5, -1, 5), (-1, None, 16), (-1, -1, 16)],
)
def test_times_max(group: int, asked: int | None, limit: int) -> None:
    assert times_max(group, asked) == limit


@pytest.mark.parametrize(
    ("times", "ordered", "dead"), [(16, False, False), (17, False, True), (0, True, True)]
)
def test_resend_is_dead(times: int, ordered: bool, dead: bool) -> None:
    assert resend_is_dead(times, 16, is_ordered=ordered) is dead
