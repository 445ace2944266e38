"""Client message ids (property UNIQ_KEY): unique without coordination.

    address 4 or 16 | process id u16 | process token u32 | milliseconds of the month u32 | count u16

in upper-case hex: 32 or 56 digits. The token distinguishes clients of one process, and processes
with equal address and id, as in containers.
"""

from __future__ import annotations

import struct
from typing import Final

_PROCESS: Final = struct.Struct(">HI")


class UniqueKeys:
    """Generates ids; unique while fewer than 65,536 are made per millisecond."""

    __slots__ = ("_count", "_prefix")

    def __init__(self, address: bytes, process_id: int, token: int, count: int = 0) -> None:
        """`count` is the number before the first one."""
        prefix = address + _PROCESS.pack(process_id & 0xFFFF, token & 0xFFFFFFFF)
        self._prefix = prefix.hex().upper()
        self._count = count

    def next(self, month_ms: int) -> str:
        """The next id; `month_ms` are the milliseconds since the month began."""
        self._count = count = self._count + 1 & 0xFFFF
        return "%s%08X%04X" % (self._prefix, month_ms & 0xFFFFFFFF, count)  # noqa: UP031 - twice as fast
