"""Dates and times in texts, by the rules of Spark's `CAST`. Years are 0001 to 9999."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

_DATE: Final = r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})%s)?)?"
# After a complete date Spark ignores what follows.
_DATE_TEXT: Final = re.compile(_DATE % r"(?:[ T].*)?", re.DOTALL)
_TIME: Final = r"[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?)?"
_ZONE: Final = r"\s*([A-Za-z+-][\w:+/-]*)"
_TIME_TEXT: Final = re.compile(_DATE % rf"(?:{_TIME}(?:{_ZONE})?)?", re.ASCII)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_SPACE: Final = "".join(map(chr, range(0x21)))
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def date_days(text: str) -> int:
    """Days since 1970. Raises `ValueError`."""
    found = _DATE_TEXT.fullmatch(text.strip(_SPACE))
    if found is None:
        raise ValueError(text)
    year, month, day = (int(part or 1) for part in found.groups())
    return (datetime.date(year, month, day) - _EPOCH.date()).days


def timestamp_micros(text: str, time_zone: str | None) -> int:
    """Microseconds since 1970, or for `time_zone` None local time, which names no zone.

    `time_zone` applies to a text without a zone. Raises `ValueError`.
    """
    found = _TIME_TEXT.fullmatch(text.strip(_SPACE))
    if found is None:
        raise ValueError(text)
    *parts, fraction, zone = found.groups()
    year, month, day, hour, minute, second = (
        int(part or least) for part, least in zip(parts, (1, 1, 1, 0, 0, 0), strict=True)
    )
    # Digits after microseconds are cut off.
    micros = int(((fraction or "") + "000000")[:6])
    moment = datetime.datetime(year, month, day, hour, minute, second, micros)
    if time_zone is None:
        if zone is not None:
            raise ValueError(text)
        return local_micros(moment)
    return zoned_micros(moment, zone or time_zone)


def zoned_micros(moment: datetime.datetime, zone: str) -> int:
    """Microseconds since 1970 of a local time in a zone. Raises `ValueError`."""
    info = _zone(zone)
    if info is None:
        return local_micros(moment)
    # Beside the first and the last day: some zones would leave the range of years.
    return local_micros(moment) - _offset_micros(moment, info)


def local_micros(moment: datetime.datetime) -> int:
    """Microseconds since 1970, for a time without a zone."""
    return (moment - _EPOCH) // _MICROSECOND


def _offset_micros(moment: datetime.datetime, info: datetime.tzinfo) -> int:
    offset = info.utcoffset(moment)
    return 0 if offset is None else offset // _MICROSECOND


@lru_cache(maxsize=256)
def _zone(name: str) -> datetime.tzinfo | None:
    """None for UTC. Raises `ValueError` for an unknown zone."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return None
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if int(offset[2]) > 23 or int(offset[3] or 0) > 59:
            raise ValueError(name)
        signed = -minutes if offset[1] == "-" else minutes
        return datetime.timezone(datetime.timedelta(minutes=signed))
    try:
        return ZoneInfo(name)
    except (LookupError, OSError):
        raise ValueError(name) from None
