"""A digest of rows that depends on their content only, not on their order or destination.

    row      CRC-32 and length of body, tags, keys and property text, and the flag: 64 bits
    digest   the sum of all rows modulo 2^64: parts of a batch are digested separately and added

Queue, times and hosts are left out, because they differ when a batch is written again. A word is
the CRC-32 of a text with its length in the upper half; a text that is missing or empty has the word
0, which adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

# Odd, so that a multiplication loses no bits. One per column and one for the flag.
_FACTORS: Final = tuple(
    map(
        np.uint64,
        (
            0x9E3779B97F4A7C15,
            0xC2B2AE3D27D4EB4F,
            0x165667B19E3779F9,
            0xD6E8FEB86659FD93,
            0xA0761D6478BD642F,
        ),
    )
)
_START: Final = np.uint64(0x2545F4914F6CDD1D)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_SHIFTS: Final = tuple(map(np.uint64, (30, 27, 31, 32)))


def sum_of_digests(columns: Iterable[Any], flags: Any, count: int) -> int:
    """Digest of `count` rows, from the words of body, tags, keys and property text.

    A column is a uint64 array, or None if it is missing. `flags` is an array or one number.
    """
    found = np.full(count, _START)
    for words, factor in zip(columns, _FACTORS, strict=False):
        if words is not None:
            found += _mixed(words * factor)
    found += np.asarray(flags, np.uint32).astype(np.uint64) * _FACTORS[4]
    return int(_mixed(found).sum(dtype=np.uint64))


def text_words(sizes: Any, crcs: Any) -> Any:
    """The words of texts, as a uint64 array."""
    return (np.asarray(sizes).astype(np.uint64) << _SHIFTS[3]) | np.asarray(crcs, np.uint64)


def _mixed(words: Any) -> Any:
    """The finalizer of SplitMix64: each input bit affects half of the output bits."""
    words = (words ^ (words >> _SHIFTS[0])) * _MIX_1
    words = (words ^ (words >> _SHIFTS[1])) * _MIX_2
    return words ^ (words >> _SHIFTS[2])
