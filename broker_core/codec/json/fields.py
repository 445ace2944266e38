"""Typed reads of parsed JSON objects: each returns a value of its type or raises an error.

A field that is absent or null has its default; without a default it is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker_core.errors import InvalidArgument

I32_MAX: Final = (1 << 31) - 1
I32_MIN: Final = -(1 << 31)
I64_MAX: Final = (1 << 63) - 1
I64_MIN: Final = -(1 << 63)

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")


def text_field(found: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A string."""
    value = found.get(name, default)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise _refused(name, value, "a string")
    return value


def whole_field(
    found: Mapping[str, Any],
    name: str,
    default: int | None = None,
    least: int = I64_MIN,
    most: int = I64_MAX,
) -> int:
    """An integer between `least` and `most`, both included."""
    value = found.get(name, default)
    if value is None:
        value = default
    # bool is an int in Python, but true is not a number in JSON.
    if type(value) is not int or not least <= value <= most:
        raise _refused(name, value, f"a whole number from {least} to {most}")
    return value


def flag_field(found: Mapping[str, Any], name: str, default: bool | None = None) -> bool:
    """true or false."""
    value = found.get(name, default)
    if value is None:
        value = default
    if not isinstance(value, bool):
        raise _refused(name, value, "true or false")
    return value


def object_field(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object with strings as keys; empty if absent."""
    value = found.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _refused(name, value, "an object")
    # The dialect allows objects as keys.
    if any(type(key) is not str for key in value):
        raise _refused(name, value, "an object with strings as keys")
    return value


def list_field(found: Mapping[str, Any], name: str) -> Sequence[Any]:
    """An array; empty if absent."""
    value = found.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _refused(name, value, "an array")
    return value


def whole_number(text: str, name: str, least: int = I64_MIN, most: int = I64_MAX) -> int:
    """The integer in a decimal string, such as a header field or a map key."""
    if _WHOLE_NUMBER.fullmatch(text) and least <= (value := int(text)) <= most:
        return value
    raise _refused(name, text, f"a whole number from {least} to {most}")


def is_deeper(value: object, depth: int) -> bool:
    """Whether a parsed value has more than `depth` levels of objects and arrays."""
    if isinstance(value, Mapping):
        return depth == 0 or any(is_deeper(item, depth - 1) for item in value.values())
    if isinstance(value, list):
        return depth == 0 or any(is_deeper(item, depth - 1) for item in value)
    return False


def _refused(name: str, value: object, accepted: str) -> InvalidArgument:
    if value is None:
        return InvalidArgument(f"{name!s:.100} is missing: give {accepted}")
    # Quote at most 60 characters: a value may be megabytes long or a number of 5,000 digits.
    shown = repr(value[:60]) if isinstance(value, str) else f"of type {type(value).__name__}"
    return InvalidArgument(f"{name!s:.100} is {shown}: give {accepted}")
