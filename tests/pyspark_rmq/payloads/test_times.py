"""Texts of times; `tests/spark/test_payloads.py` compares more of them with Spark."""

from __future__ import annotations

import pytest

from pyspark_rmq.payloads.times import date_days, timestamp_micros

NOON = 1_717_156_800_000_000


@pytest.mark.parametrize(
    ("text", "zone", "micros"),
    [
        ("2024-05-31T12", "UTC", NOON),
        ("2024-05-31 12:00:00.1234567", "UTC", NOON + 123_456),
        ("2024-05-31T12:00:00", "Europe/Berlin", NOON - 7_200_000_000),
        ("2024-05-31T12:00:00Z", "Europe/Berlin", NOON),
        ("2024-05-31T12:00:00-03:30", "UTC", NOON + 12_600_000_000),
        ("2024-05-31T12:00:00", None, NOON),
        ("0001-01-01T00:00:00+14:00", "UTC", -62_135_596_800_000_000 - 50_400_000_000),
    ],
)
def test_timestamps(text: str, zone: str | None, micros: int) -> None:
    assert timestamp_micros(text, zone) == micros


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("2024-05-31T12:00:00Z", None),
        ("2024-05-31T25:00:00", "UTC"),
        ("2024-05-31T12:00:00+24:00", "UTC"),
        ("2024-05-31T12:00:00+02:60", "UTC"),
        ("2024-05-31T12:00:00Nowhere/Land", "UTC"),
        ("2024-05-31T12:00:00../../etc/passwd", "UTC"),
        ("٢٠٢٤-05-31", "UTC"),
        ("", "UTC"),
    ],
)
def test_other_texts_are_refused(text: str, zone: str | None) -> None:
    with pytest.raises(ValueError):
        timestamp_micros(text, zone)


def test_dates() -> None:
    assert date_days("1970-1-2") == 1
    assert date_days("1970-01-02T whatever") == 1
    with pytest.raises(ValueError):
        date_days("1970-02-30")
