"""Which of the queue units that were read a pull returns: the twin of the native `choose_units`."""

from __future__ import annotations

import struct
from typing import Final

from broker_core.codec import record_reasons as reasons
from broker_core.codec.column_batch import Buffer

_UNIT: Final = struct.Struct(">qiq")
_PRE_BLANK_SIZE: Final = 0x7FFFFFFF

Choice = tuple[list[tuple[int, int]], int, bool, bool]
"""Runs of consecutive units to return, of the first n visited; whether any was filtered out, and
whether any record is gone already."""


def choose_units(
    units: Buffer, log_start: int, count_max: int, size_max: int, codes: Buffer | None
) -> Choice:
    """Take matching units until a limit is met, but always at least one.

    `codes` are the tag codes wanted, native int32 each; None takes all.
    """
    view = memoryview(units).cast("B")
    if len(view) % _UNIT.size:
        raise ValueError(reasons.BAD_UNITS)
    wanted = None if codes is None else frozenset(memoryview(codes).cast("B").cast("i"))
    runs: list[tuple[int, int]] = []
    count = size = visited = 0
    filtered = removed = False
    for position, record_size, code in _UNIT.iter_unpack(view):
        if position < log_start or record_size == _PRE_BLANK_SIZE:
            removed = True
        elif wanted is not None and _low_32_bits(code) not in wanted:
            filtered = True
        else:
            if count and (count >= count_max or size + record_size > size_max):
                break
            if runs and runs[-1][1] == visited:
                runs[-1] = (runs[-1][0], visited + 1)
            else:
                runs.append((visited, visited + 1))
            count += 1
            size += record_size
        visited += 1
    return runs, visited, filtered, removed


def _low_32_bits(code: int) -> int:
    """As a signed int, the way subscriptions carry their codes."""
    return (code & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
