"""CRC-32 of bodies and of the rows of a column: the twin of `crc.c`."""

from __future__ import annotations

from zlib import crc32

from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.record_layout import CRC_MASK

__all__ = ["body_crc", "column_crcs"]

_KINDS = {4: "i", 8: "q"}
_CRC_SIZE = 4


def body_crc(data: Buffer, /) -> int:
    """Checksum of a body as records store it."""
    return crc32(data) & CRC_MASK


def column_crcs(data: Buffer, offsets: Buffer, width: int, out: Buffer) -> None:
    """Write the CRC-32 of each row into `out`, as native-endian u32.

    `offsets` are native-endian integers of `width` bytes, one more than there are rows. Raises
    `ValueError` when they do not match the data or `out`.
    """
    with memoryview(data) as plain, memoryview(offsets) as bounds, memoryview(out) as found:
        if found.readonly:
            raise BufferError("out is read-only")
        count = found.nbytes // _CRC_SIZE
        sizes_match = found.nbytes % _CRC_SIZE == 0 and bounds.nbytes == (count + 1) * width
        if width not in _KINDS or not sizes_match:
            raise ValueError("offsets and out must have one row each")
        ends = bounds.cast("B").cast(_KINDS[width])  # type: ignore[call-overload]
        rows, crcs = plain.cast("B"), found.cast("B").cast("I")
        start = ends[0]
        for row in range(count):
            end = ends[row + 1]
            if start < 0 or end < start or end > len(rows):
                raise ValueError("offsets are outside the data")
            crcs[row] = crc32(rows[start:end])
            start = end
