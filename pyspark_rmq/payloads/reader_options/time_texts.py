"""How texts of dates and times are read: by a zone and by patterns. No Arrow."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark_rmq.payloads.reader_options.time_patterns import TimePattern
from pyspark_rmq.payloads.times import date_days, timestamp_micros


class TimePatterns(NamedTuple):
    """Patterns of options; empty for the usual forms."""

    timestamp: str = ""
    local: str = ""
    """Of TIMESTAMP_NTZ."""
    date: str = ""


USUAL: Final = TimePatterns()


class TimeTexts:
    """Reads texts. Every method raises `ValueError`."""

    def __init__(self, time_zone: str = "UTC", patterns: TimePatterns = USUAL) -> None:
        self.time_zone = time_zone
        self.patterns = patterns
        self._timestamp, self._local, self._date = (
            TimePattern(option, pattern) if pattern else None
            for option, pattern in zip(
                ("timestampFormat", "timestampNTZFormat", "dateFormat"), patterns, strict=True
            )
        )

    def timestamp(self, text: str) -> int:
        """Microseconds since 1970."""
        if self._timestamp is not None:
            return self._timestamp.micros(text, self.time_zone)
        return timestamp_micros(text, self.time_zone)

    def local(self, text: str) -> int:
        """Microseconds of a local time."""
        if self._local is not None:
            return self._local.local_micros(text)
        return timestamp_micros(text, None)

    def date(self, text: str) -> int:
        """Days since 1970."""
        return date_days(text) if self._date is None else self._date.days(text)
