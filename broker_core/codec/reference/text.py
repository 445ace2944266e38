"""Java's `String.hashCode`, used for tag codes and index keys: the twin of `text.c`.

The hash runs over UTF-16 units of the decoded text; bytes that are not UTF-8 decode with U+FFFD
for each maximal invalid part.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import Final

__all__ = ["java_hash"]

_WORD = 1 << 32
_SIGN = 1 << 31
_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_POWERS_MAX = 512
# 31**k mod 2**32, highest power first, so that the last n of them fit a text of n units.
_POWERS = tuple(pow(31, k, _WORD) for k in range(_POWERS_MAX - 1, -1, -1))
# Tags may be up to 32 KiB long; only short ones are worth caching.
_CACHED_SIZE_MAX: Final = 256


def java_hash(text: bytes, /) -> int:
    """Signed 32-bit hash of UTF-8 `text`."""
    if not isinstance(text, bytes):
        raise TypeError("text must be bytes")
    return _signed(_extend(0, text))


def index_key_hash(prefix_state: int, key: bytes) -> int:
    """Non-negative index hash of `prefix + key`, where `prefix_state` is `hash_state(prefix)`."""
    value = abs(_signed(_extend(prefix_state, key)))
    return 0 if value == _SIGN else value


@lru_cache(maxsize=4096)
def hash_state(text: bytes) -> int:
    """Unsigned hash of `text`, to be continued by `index_key_hash`; for texts that repeat."""
    return _extend(0, text)


def tags_hash(tags: bytes) -> int:
    """`java_hash`, cached: few tags are used by many messages."""
    return _cached_hash(tags) if len(tags) <= _CACHED_SIZE_MAX else java_hash(tags)


@lru_cache(maxsize=4096)
def _cached_hash(tags: bytes) -> int:
    return java_hash(tags)


def _extend(state: int, text: bytes) -> int:
    units: Sequence[int] = text
    if not text.isascii():
        units = memoryview(text.decode("utf-8", "replace").encode(_UTF16)).cast("H")
    for start in range(0, len(units), _POWERS_MAX):
        part = units[start : start + _POWERS_MAX]
        count = len(part)
        summed = sum(map(mul, part, _POWERS[_POWERS_MAX - count :]))
        state = (state * pow(31, count, _WORD) + summed) % _WORD
    return state


def _signed(value: int) -> int:
    return value - _WORD if value >= _SIGN else value
