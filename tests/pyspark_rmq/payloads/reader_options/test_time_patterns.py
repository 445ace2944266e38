"""Patterns of times; tests/spark/test_payload_options.py compares them with `from_json`."""

from __future__ import annotations

import pytest

from broker_core import errors
from pyspark_rmq.payloads.reader_options.time_patterns import TimePattern

NOON = 1_717_156_800_000_000


@pytest.mark.parametrize(
    ("pattern", "text", "micros"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2024-05-31 12:00:00", NOON),
        ("dd/MM/yyyy HH:mm", "31/05/2024 12:00", NOON),
        ("yyyyMMddHHmmss", "20240531120000", NOON),
        ("yyyyMMddHHmmssSSS", "20240531120000250", NOON + 250_000),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "2024-05-31T14:00:00.5+02:00", NOON + 500_000),
        ("yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "2024-05-31T12:00:00Z", NOON),
        ("yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "2024-05-31T12:00:00", NOON),
        ("d MMM yyyy h:mm a", "31 May 2024 12:00 pm", NOON),
        ("MMMM d, yyyy HH", "May 31, 2024 12", NOON),
        ("yyyy-MM-dd HH:mm:ss Z", "2024-05-31 07:00:00 -0500", NOON),
        ("yyyy-MM-dd HH:mm:ss VV", "2024-05-31 14:00:00 Europe/Berlin", NOON),
        ("yy-M-d k 'o''clock'", "24-5-31 12 o'clock", NOON),
    ],
)  # fmt: skip
def test_moments(pattern: str, text: str, micros: int) -> None:
    assert TimePattern("timestampFormat", pattern).micros(text, "UTC") == micros


def test_other_forms() -> None:
    zoned = TimePattern("timestampFormat", "yyyy-MM-dd HH")
    assert zoned.micros("2024-05-31 14", "Europe/Berlin") == NOON
    assert TimePattern("dateFormat", "MM/yyyy").days("06/1970") == 151
    assert TimePattern("timestampNTZFormat", "yyyy-MM-dd HH").local_micros("2024-05-31 12") == NOON
    with pytest.raises(ValueError, match="Z"):
        TimePattern("timestampNTZFormat", "yyyy-MM-dd[XXX]").local_micros("2024-05-31Z")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd", "2024-5-31"),
        ("yyyy-MM-dd", "2024-02-30"),
        ("yyyy-MM-dd", "2024-05-31 "),
        ("yyyy-MM-dd", "0000-05-31"),
        ("HH:mm", "24:00"),
        ("hh:mm a", "13:00 PM"),
        ("yyyy-MM-dd VV", "2024-05-31 Mars/North"),
        ("yyyy yyyy", "2024 2023"),
        ("XXXXX", "+02:00:30"),
    ],
)
def test_texts_that_are_refused(pattern: str, text: str) -> None:
    with pytest.raises(ValueError):
        TimePattern("timestampFormat", pattern).micros(text, "UTC")


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("YYYY-MM-dd", "YYYY"), ("yyyy-'W'ww", "ww"), ("EEE dd", "EEE"), ("G yyyy", "G"),
        ("yyyyy", "yyyyy"), ("MMMMM", "MMMMM"), ("z", "z"), ("V", "V"), ("DDD", "DDD"),
        ("QQQ", "QQQ"), ("uuuu", "uuuu"), ("'T", "a quote"), ("[yyyy", "brackets"),
        ("yyyy]", "brackets"),
        ("{", "the character {"), ("SSSSSSSSSS", "SSSSSSSSSS"), ("aa", "aa"), ("ddd", "ddd"),
    ],
)  # fmt: skip
def test_an_unsupported_letter_is_named(pattern: str, named: str) -> None:
    with pytest.raises(errors.InvalidConfig, match=f"it has {named}") as raised:
        TimePattern("dateFormat", pattern)
    assert "dateFormat" in str(raised.value)
