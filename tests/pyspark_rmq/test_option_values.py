"""Times and durations in options."""

from __future__ import annotations

import pytest

from broker_core.errors import InvalidConfig
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


@pytest.mark.parametrize(
    ("name", "text", "most", "accepted"),
    [
        ("maxOffsetsPerTrigger", "-5", option_values.I64_MAX, "a whole number of at least 1"),
        (
            "maxOffsetsPerTrigger", "10k", option_values.I64_MAX,
            "a whole number of at least 1, without a unit",
        ),
        (
            "maxBytesPerTrigger", "1.5 GB", option_values.I64_MAX,
            "a whole number of at least 1, without a unit",
        ),
        ("retries", "x", 10, "a whole number from 1 to 10"),
        (
            "rmq.connect.timeout.ms", "5s", 86_400_000,
            "milliseconds, a whole number from 1 to 86400000, without a unit",
        ),
        ("waitForTopicMs", "0", 9, "milliseconds, a whole number from 1 to 9"),
    ],
)  # fmt: skip
def test_what_a_number_must_be(name: str, text: str, most: int, accepted: str) -> None:
    with pytest.raises(InvalidConfig) as found:
        option_values.whole(name, text, 1, most)
    assert str(found.value) == f"{name}={text!r} cannot be used: {accepted}"
