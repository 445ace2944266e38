"""A digest of rows that depends on their content only, not on their order or destination.

    row      CRC-32 and length of body, tags, keys and property text, and the flag: 64 bits
    digest   the sum of all rows modulo 2^64: parts of a batch are digested separately and added

Queue, times and hosts are left out, because they differ when a batch is written again.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from broker_core.codec.native import column_crcs
from broker_core.codec.records.column_batch import Column, ColumnBatch

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


def digest_rows(batch: ColumnBatch, flags: Any = None) -> int:
    """The digest of a batch; `flags` has one integer per row if they differ."""
    if not batch.count:
        return 0
    found = np.full(batch.count, _START)
    columns = (batch.body, batch.tags, batch.keys, batch.properties)
    for column, factor in zip(columns, _FACTORS, strict=False):
        if column is not None:
            # An empty text adds nothing, like a missing one.
            found += _mixed(_words(column, batch.count) * factor)
    flag = np.uint64(batch.flag & 0xFFFFFFFF) if flags is None else np.asarray(flags, np.uint32)
    found += np.asarray(flag, np.uint64) * _FACTORS[4]
    return int(_mixed(found).sum(dtype=np.uint64))


def _words(column: Column, count: int) -> Any:
    data, offsets, width = column
    crcs = np.empty(count, np.uint32)
    column_crcs(data, offsets, width, crcs)
    ends = np.frombuffer(offsets, np.int32 if width == 4 else np.int64)
    return (np.diff(ends).astype(np.uint64) << _SHIFTS[3]) | crcs


def _mixed(words: Any) -> Any:
    """The finalizer of SplitMix64: each input bit affects half of the output bits."""
    words = (words ^ (words >> _SHIFTS[0])) * _MIX_1
    words = (words ^ (words >> _SHIFTS[1])) * _MIX_2
    return words ^ (words >> _SHIFTS[2])
