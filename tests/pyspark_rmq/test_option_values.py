"""Times and durations in options."""

from __future__ import annotations

import pytest

from pyspark_rmq import option_values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1717156800000", 1_717_156_800_000),
        ("2024-05-31T12:00:00Z", 1_717_156_800_000),
        ("2024-05-31T14:00:00+02:00", 1_717_156_800_000),
        ("2024-05-31T12:00:00", 1_717_156_800_000),
        ("2024-05-31 12:00:00.250", 1_717_156_800_250),
    ],
)
def test_moments(text: str, expected: int) -> None:
    assert option_values.time_ms("startingTimestamp", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("5", 5), ("15m", 900_000), ("2 h", 7_200_000), ("3min", 180_000)]
)
def test_durations(text: str, expected: int) -> None:
    assert option_values.duration_ms("maxTriggerDelay", text) == expected
