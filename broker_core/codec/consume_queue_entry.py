"""Unit of a consume queue, 20 bytes big-endian: phyOffset 8, TOTALSIZE 4, tagsCode 8.

Unit k of a queue is at byte 20 * k. A unit is written if its position is not negative and its size
positive; pre-blank units fill the space before the first unit of a queue that starts mid-file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker_core.codec import record_reasons as reasons
from broker_core.codec.column_batch import Buffer
from broker_core.codec.java_hash import java_hash
from broker_core.codec.record_layout import UNIT
from broker_core.errors import MalformedRecord

UNIT_SIZE: Final = 20
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
PRE_BLANK_UNIT: Final = UNIT.pack(0, PRE_BLANK_SIZE, 0)


class QueueUnit(NamedTuple):
    """Where a message is in the log, and its tag hash or delivery time."""

    position: int
    size: int
    tags_code: int

    @property
    def is_written(self) -> bool:
        """False for the zeros behind the last unit of a queue file."""
        return self.position >= 0 and self.size > 0

    @property
    def is_pre_blank(self) -> bool:
        """True for filler that stands for no message."""
        return self.size == PRE_BLANK_SIZE

    @property
    def end_position(self) -> int:
        """Log position after the message."""
        return self.position + self.size


def encode_unit(unit: QueueUnit) -> bytes:
    """The 20 bytes of a unit."""
    return UNIT.pack(*unit)


def decode_unit(buf: Buffer, start: int = 0) -> QueueUnit:
    """Unit at byte index `start`."""
    return QueueUnit._make(UNIT.unpack_from(buf, start))


def decode_units(buf: Buffer) -> Iterator[QueueUnit]:
    """All units of `buf`, whose size must be a multiple of 20."""
    if memoryview(buf).nbytes % UNIT_SIZE:
        raise MalformedRecord(0, reasons.BAD_UNITS)
    return map(QueueUnit._make, UNIT.iter_unpack(buf))


def tags_code(tags: str) -> int:
    """Code under which a message with these tags is in its queue; 0 without tags."""
    return java_hash(tags.encode("utf-8", "replace")) if tags else 0
