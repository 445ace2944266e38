"""`Scan`: the result of one walk over log bytes, and why the walk stopped."""

from __future__ import annotations

from typing import Final, NamedTuple

STOP_LIMIT: Final = 0
"""Every byte up to the limit belongs to an accepted record."""
STOP_BLANK: Final = 1
"""The end-of-file blank is at `end`."""
STOP_EMPTY: Final = 2
"""Size and magic at `end` are zero, or fewer than 8 bytes are left: nothing was written there."""
STOP_INVALID: Final = 3
"""The bytes at `end` are not a valid record; `reason` says why."""
STOP_GROUP: Final = 4
"""A valid record of the group topic is at `end` and is not the first record of the walk."""


class Scan(NamedTuple):
    """The records accepted by one walk, as queue units and index entries."""

    end: int
    """Buffer index after the last accepted record."""
    stop: int
    reason: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    store_timestamp: int
    """Store time of the last accepted record; 0 if none."""
    queues: dict[tuple[bytes, int], tuple[int, bytes]]
    """(topic, queue id) -> (queue offset of its first unit, its 20-byte units)."""
    keys: bytes
    """Index entries in log order: i32 hash, i64 position, i64 store time, big-endian."""
