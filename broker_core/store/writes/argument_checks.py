"""Checks of strings and numbers from callers; `InvalidArgument` names the argument."""

from __future__ import annotations

from typing import Any

from broker_core.errors import InvalidArgument


def encoded_text(name: str, value: Any) -> bytes:
    """The UTF-8 bytes of a string."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be str, not {value!r:.80}")
    # A string that cannot be encoded was never stored; it must not match a stored "?".
    return value.encode("utf-8", "surrogatepass")


def check_integer(name: str, value: Any) -> None:
    """Raise `InvalidArgument` unless the value is an integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} must be int, not {value!r:.80}")


def check_numbers(**numbers: Any) -> None:
    """Raise `InvalidArgument` unless all are non-negative integers."""
    for name, value in numbers.items():
        check_integer(name, value)
        if value < 0 or value >= 1 << 63:
            raise InvalidArgument(f"{name}={value} is out of range")
