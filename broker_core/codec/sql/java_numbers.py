"""Parses numbers exactly as Java does; other forms that Python accepts are rejected.

Used where a message must be treated as a Java broker treats it.
"""

from __future__ import annotations

import re
from math import copysign, inf
from typing import Final

INTEGER_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1

# Any decimal digits of the basic multilingual plane, as in Java.
_WHOLE: Final = re.compile(r"[+-]?\d+")
# Longer numbers are rejected without conversion; leading zeros are not counted.
_DIGITS_MAX: Final = 256
_DOUBLE: Final = re.compile(
    r"[\x00-\x20]*(?P<sign>[+-]?)(?:"
    r"(?P<name>NaN|Infinity)"
    r"|(?P<decimal>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
    r")[\x00-\x20]*"
)


class NotANumber(ValueError):
    """A string that Java does not parse as a number of the requested type."""


def read_whole(text: str, limit: int) -> int:
    """`Integer.valueOf` or `Long.valueOf`; `limit` is the largest value of that type."""
    if _WHOLE.fullmatch(text) is None:
        raise NotANumber
    if len(text) > 20:
        sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
        text = sign + (digits.lstrip("0") or "0")
        if len(text) > _DIGITS_MAX:
            raise NotANumber
    if not text.isascii() and max(text) > "\uffff":
        raise NotANumber
    value = int(text)
    if not -limit - 1 <= value <= limit:
        raise NotANumber
    return value


def read_double(text: str) -> float:
    """`Double.valueOf`."""
    found = _DOUBLE.fullmatch(text)
    if found is None:
        raise NotANumber
    sign = -1.0 if found["sign"] == "-" else 1.0
    decimal = found["decimal"]
    if decimal is not None:
        return sign * float(decimal)
    if found["hex"] is not None:
        try:
            return sign * float.fromhex(found["hex"])
        except OverflowError:
            return sign * inf
    return sign * float(found["name"])


def compare_doubles(left: float, right: float) -> int:
    """`Double.compareTo`: NaN is the largest and equals itself, -0.0 is less than 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return 0 if left else int(copysign(1, left) - copysign(1, right)) // 2
    return (left != left) - (right != right)
