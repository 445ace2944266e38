"""Patterns of `timestampFormat`, `timestampNTZFormat` and `dateFormat`, by Spark's rules.

A pattern becomes a regular expression with a group for each field. Texts that Spark would parse
give the same moment; Spark's parser and this one are compared in a test. Years are 0001 to 9999.
"""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Mapping
from typing import Final

from broker_core import errors
from pyspark_rmq.payloads.times import local_micros, zoned_micros

_MONTHS: Final = [name.lower() for name in calendar.month_name]
_SHORT_MONTHS: Final = [name.lower() for name in calendar.month_abbr]
# Letter -> pattern by number of letters; the last one also for more.
_DIGITS: Final = ("[0-9]{1,19}", "[0-9]{2}")
_YEARS: Final = ("[0-9]{1,4}", "[0-9]{2}", "[0-9]{3,4}", "[0-9]{4}")
_OFFSETS: Final = (
    "[+-][0-9]{2}(?:[0-9]{2})?",
    "[+-][0-9]{4}",
    "[+-][0-9]{2}:[0-9]{2}",
    "[+-][0-9]{4}(?:[0-9]{2})?",
    "[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?",
)
_LETTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "y": _YEARS,
    "M": (*_DIGITS, "|".join(_SHORT_MONTHS[1:]), "|".join(_MONTHS[1:])),
    "L": (*_DIGITS, "|".join(_SHORT_MONTHS[1:]), "|".join(_MONTHS[1:])),
    "d": _DIGITS,
    "H": _DIGITS,
    "h": _DIGITS,
    "K": _DIGITS,
    "k": _DIGITS,
    "m": _DIGITS,
    "s": _DIGITS,
    "S": ("[0-9]",),
    "a": ("am|pm",),
    "X": tuple(f"{offset}|z" for offset in _OFFSETS),
    "x": _OFFSETS,
    "Z": (_OFFSETS[1],) * 3 + (r"gmt(?:[+-][0-9]{2}:[0-9]{2})?", f"{_OFFSETS[4]}|z"),
    "V": ("", r"[a-z][\w+/:-]*|[+-][0-9]{2}(?::?[0-9]{2})?"),
}
# More letters than these mean something else to Spark, or are an error there.
_COUNT_MAX: Final[Mapping[str, int]] = {
    "y": 4, "M": 4, "L": 4, "S": 9, "a": 1, "X": 5, "x": 5, "Z": 5, "V": 2,
}  # fmt: skip
_ZONES: Final = "XxZV"
_SECONDS_OFFSET: Final = re.compile(r"([+-])([0-9]{2}):?([0-9]{2}):?([0-9]{2})")


class TimePattern:
    """A compiled pattern. Raises `InvalidConfig`, which names a letter that is not supported."""

    def __init__(self, option: str, pattern: str) -> None:
        self._option, self._pattern = option, pattern
        self._fields: list[str] = []
        self._regex = re.compile(self._compiled(), re.IGNORECASE | re.ASCII)

    def days(self, text: str) -> int:
        """Days since 1970. Raises `ValueError`."""
        moment, _ = self._parsed(text)
        return moment.date().toordinal() - datetime.date(1970, 1, 1).toordinal()

    def micros(self, text: str, time_zone: str) -> int:
        """Microseconds since 1970; `time_zone` applies to texts without one. `ValueError`."""
        moment, zone = self._parsed(text)
        return zoned_micros(moment, zone or time_zone)

    def local_micros(self, text: str) -> int:
        """Microseconds of a local time. Raises `ValueError`."""
        moment, zone = self._parsed(text)
        if zone:
            raise ValueError(text)
        return local_micros(moment)

    def _compiled(self) -> str:
        found: list[str] = []
        at, depth = 0, 0
        pattern = self._pattern
        while at < len(pattern):
            letter = pattern[at]
            if letter == "'":
                text, at = self._quoted(at)
                found.append(re.escape(text))
                continue
            if letter.isalpha() and letter.isascii():
                end = at
                while end < len(pattern) and pattern[end] == letter:
                    end += 1
                found.append(self._field(letter, end - at))
                at = end
                continue
            if letter in "[]":
                depth += 1 if letter == "[" else -1
                found.append("(?:" if letter == "[" else ")?")
            elif letter in "{}#":
                raise self._refused(f"the character {letter}")
            else:
                found.append(re.escape(letter))
            if depth < 0:
                break
            at += 1
        if depth:
            raise self._refused("brackets that do not match")
        return "".join(found)

    def _quoted(self, start: int) -> tuple[str, int]:
        """Text between quotes; two of them are one."""
        if self._pattern.startswith("''", start):
            return "'", start + 2
        at, text = start + 1, ""
        while True:
            end = self._pattern.find("'", at)
            if end < 0:
                raise self._refused("a quote that does not end")
            text += self._pattern[at:end]
            if not self._pattern.startswith("''", end):
                return text, end + 1
            text, at = text + "'", end + 2

    def _field(self, letter: str, count: int) -> str:
        forms = _LETTERS.get(letter)
        most = _COUNT_MAX.get(letter, 2)
        if forms is None or count > most or not forms[min(count, len(forms)) - 1]:
            raise self._refused(f"{letter * count}")
        self._fields.append(letter)
        if letter == "S":
            return f"([0-9]{{1,{count}}})"
        return f"({forms[min(count, len(forms)) - 1]})"

    def _refused(self, what: str) -> errors.InvalidConfig:
        return errors.InvalidConfig(
            self._option,
            self._pattern,
            "a pattern of Spark with the letters y M L d H h K k m s S a X x Z VV, texts in"
            f" quotes and optional parts in brackets; it has {what}, which is not supported",
        )

    def _parsed(self, text: str) -> tuple[datetime.datetime, str]:
        found = self._regex.fullmatch(text)
        if found is None:
            raise ValueError(text)
        parts: dict[str, str] = {}
        for letter, part in zip(self._fields, found.groups(), strict=True):
            if part is not None and parts.setdefault(letter, part) != part:
                raise ValueError(text)
        fraction = parts.get("S", "")
        moment = datetime.datetime(
            _year(parts),
            _month(parts),
            int(parts.get("d", "1")),
            _hour(parts, text),
            int(parts.get("m", "0")),
            int(parts.get("s", "0")),
            int((fraction + "000000")[:6]),
        )
        return moment, _zone(parts)


def _year(parts: Mapping[str, str]) -> int:
    text = parts.get("y") or "1970"
    return 2000 + int(text) if len(text) == 2 else int(text)


def _month(parts: Mapping[str, str]) -> int:
    text = (parts.get("M") or parts.get("L") or "1").lower()
    if text.isdigit():
        return int(text)
    return _MONTHS.index(text) if text in _MONTHS else _SHORT_MONTHS.index(text)


def _hour(parts: Mapping[str, str], text: str) -> int:
    afternoon = 12 if parts.get("a", "").lower() == "pm" else 0
    # Letter -> first and last value.
    for letter, (first, last) in {"H": (0, 23), "k": (1, 24), "h": (1, 12), "K": (0, 11)}.items():
        if letter in parts:
            hour = int(parts[letter])
            if not first <= hour <= last:
                raise ValueError(text)
            return hour % 24 if letter in "Hk" else hour % 12 + afternoon
    return afternoon


def _zone(parts: Mapping[str, str]) -> str:
    zone = next((parts[letter] for letter in _ZONES if letter in parts), "")
    if zone in ("z", "Z"):
        return "UTC"
    seconds = _SECONDS_OFFSET.fullmatch(zone)
    if seconds is not None:
        # Offsets with seconds, which no zone has today.
        if seconds[4] != "00":
            raise ValueError(zone)
        return f"{seconds[1]}{seconds[2]}:{seconds[3]}"
    return zone.upper() if zone[:3].lower() == "gmt" else zone
