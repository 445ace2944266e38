"""Client message ids (property UNIQ_KEY): unique without coordination.

    address 4 or 16 | process id u16 | process token u32 | milliseconds of the month u32 | count u16

in upper-case hex: 32 or 56 digits.
"""

from __future__ import annotations

import struct
from typing import Final

_PROCESS: Final = struct.Struct(">HI")
_MOMENT: Final = struct.Struct(">IH")


class UniqueKeys:
    """Generates the ids of one process. `token` distinguishes processes with the same id."""

    def __init__(self, address: bytes, process_id: int, token: int) -> None:
        prefix = address + _PROCESS.pack(process_id & 0xFFFF, token & 0xFFFFFFFF)
        self._prefix = prefix.hex().upper()
        self._count = 0

    def next(self, month_ms: int) -> str:
        """The next id; `month_ms` are the milliseconds since the month began."""
        self._count = (self._count + 1) & 0xFFFF
        moment = _MOMENT.pack(month_ms & 0xFFFFFFFF, self._count)
        return self._prefix + moment.hex().upper()
