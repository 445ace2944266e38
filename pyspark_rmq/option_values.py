"""Parsers of option values. Pure; errors name the option, its text and the accepted form."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Collection
from typing import Any, Final

from broker_core import errors

I64_MAX: Final = (1 << 63) - 1
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_DURATION: Final = re.compile(r"(\d{1,12})\s*(ms|s|min|m|h|d)?")
_WITH_UNIT: Final = re.compile(r"[-+]?[0-9.,_]{1,30}\s*[A-Za-z]{1,12}")
_JSON_DEPTH_MAX: Final = 4


def plain(name: str, text: str) -> str:
    """A non-empty text, stripped."""
    if not text.strip():
        raise errors.InvalidConfig(name, text, "a text that is not empty")
    return text.strip()


def number(least: int = 0, most: int = I64_MAX) -> Callable[[str, str], int]:
    """`whole` with its bounds."""
    return lambda name, text: whole(name, text, least, most)


def one_of(*accepted: str) -> Callable[[str, str], str]:
    """`choice` with its words."""
    return lambda name, text: choice(name, text, accepted)


def flag(name: str, text: str) -> bool:
    """`true` or `false`, case-insensitive."""
    known = {"true": True, "false": False}.get(text.strip().lower())
    if known is None:
        raise errors.InvalidConfig(name, text, "true or false")
    return known


def whole(name: str, text: str, least: int = 0, most: int = I64_MAX) -> int:
    """A whole number within bounds."""
    stripped = text.strip()
    if re.fullmatch(r"-?[0-9]{1,19}", stripped) and least <= int(stripped) <= most:
        return int(stripped)
    accepted = f"from {least} to {most}" if most < I64_MAX else f"of at least {least}"
    accepted = f"a whole number {accepted}"
    if name.lower().endswith(("ms", "millis")):
        accepted = f"milliseconds, {accepted}"
    if _WITH_UNIT.fullmatch(stripped):
        accepted += ", without a unit"
    raise errors.InvalidConfig(name, text, accepted)


def choice(name: str, text: str, accepted: Collection[str]) -> str:
    """One of `accepted`, case-insensitive."""
    found = {word.lower(): word for word in accepted}.get(text.strip().lower())
    if found is None:
        raise errors.InvalidConfig(name, text, " or ".join(accepted))
    return found


def duration_ms(name: str, text: str) -> int:
    """`15m`, `30s`, `250ms`, `2h`, `1d`; a bare number is milliseconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise errors.InvalidConfig(name, text, "a duration such as 250ms, 30s, 15m, 2h or 1d")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def time_ms(name: str, text: str) -> int:
    """Milliseconds since 1970, or a date and time as ISO 8601 writes it (UTC without an offset)."""
    stripped = text.strip()
    if re.fullmatch(r"[0-9]{1,15}", stripped):
        return int(stripped)
    try:
        # Python 3.10 does not parse Z.
        moment = datetime.datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", stripped))
    except ValueError:
        accepted = "milliseconds since 1970, or ISO 8601 such as 2024-05-31T12:00:00Z"
        raise errors.InvalidConfig(name, text, accepted) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return max(0, round(moment.timestamp() * 1000))


def words(name: str, text: str) -> tuple[str, ...]:
    """Words separated by commas, without duplicates."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise errors.InvalidConfig(name, text, "at least one name, several separated by commas")
    return found


def pattern(name: str, text: str) -> str:
    """A regular expression of Python."""
    try:
        re.compile(text)
    except re.error as error:
        accepted = f"a regular expression ({error})"
        raise errors.InvalidConfig(name, text, accepted) from None
    return text


def json_object(name: str, text: str, accepted: str) -> dict[str, Any]:
    """A JSON object without duplicate keys."""
    try:
        found = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidConfig(name, text, f"{accepted} ({error})") from None
    if not isinstance(found, dict) or not found or _depth(found) > _JSON_DEPTH_MAX:
        raise errors.InvalidConfig(name, text, accepted)
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0
