"""The first of many records that needs a closer look: the twin of `find_unusual`."""

from __future__ import annotations

import struct
from typing import Final

from broker_core.codec import record_reasons as reasons
from broker_core.codec.column_batch import Buffer
from broker_core.codec.record_checks import as_view
from broker_core.codec.record_layout import FIXED_SIZE
from broker_core.errors import MalformedRecord

# TOTALSIZE, SYSFLAG and PREPARED TRANSACTION OFFSET of a record with short hosts.
_HEAD: Final = struct.Struct(">i32xi36xq")
# Parts of transactions, and long hosts, with which the offset is elsewhere.
_UNUSUAL_FLAGS: Final = 0x3C


def find_unusual(run: Buffer, start: int, size_max: int) -> int:
    """Where in `run` the first record from `start` on is that is larger than `size_max`, is part
    of a transaction or has long hosts; -1 when there is none.

    Raises `MalformedRecord` when sizes do not add up; nothing else is proven.
    """
    view = as_view(run)
    end = len(view)
    if not 0 <= start <= end or size_max < 0:
        raise ValueError(reasons.BAD_RANGE)
    while start < end:
        if end - start < FIXED_SIZE:
            raise MalformedRecord(start, reasons.HEADER_CUT)
        size, sys_flag, prepared = _HEAD.unpack_from(view, start)
        if size < FIXED_SIZE:
            raise MalformedRecord(start, reasons.SIZE_TOO_SMALL)
        if size > end - start:
            raise MalformedRecord(start, reasons.SIZE_PAST_LIMIT)
        if size > size_max or sys_flag & _UNUSUAL_FLAGS or prepared:
            return start
        start += size
    return -1
