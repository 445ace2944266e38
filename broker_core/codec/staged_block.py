"""Blocks of a staging file: records without a place in the log yet, and the queues they are for.

    0   4  magic "RMQU"
    4   4  length of the queue table
    8   8  length of the records
    16  8  number of records
    24  4  CRC-32 of the table, continued from the checksum of the records
    28     queue table (msgpack), then template records

Written by the broker, or by a writer on the same machine. What a file holds is told by three
numbers: its size, its records, and the CRC-32 of all block heads.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]

from broker_core.codec.column_batch import Buffer, ColumnBatch
from broker_core.codec.record_columns import body_crc, encode_batch, measure_batch
from broker_core.errors import StagingRefused

_HEAD: Final = struct.Struct(">4sIQQI")
_MAGIC: Final = b"RMQU"
_TEMPLATE: Final = -1
# The encoder leaves room for the blank at the end of a log file.
_SPARE_SIZE: Final = 8

HEAD_SIZE: Final = _HEAD.size

QueueKeys = tuple[tuple[bytes, int], ...]


class StagedBlock(NamedTuple):
    """One block of a file."""

    head: bytes
    queues: QueueKeys
    record_count: int
    checksum: int
    records_at: int
    end: int


def encode_table(queues: QueueKeys) -> bytes:
    """The queues of a block."""
    table: bytes = msgpack.packb(queues)
    return table


def encode_head(table: bytes, records: Buffer, count: int) -> bytes:
    """What comes before the table of a block."""
    checksum = block_checksum(table, records)
    return _HEAD.pack(_MAGIC, len(table), memoryview(records).nbytes, count, checksum)


def block_checksum(table: Buffer, records: Buffer) -> int:
    """Of a block's content."""
    return zlib.crc32(table, body_crc(records))


def join_heads(head: bytes, checksum: int = 0) -> int:
    """The checksum of a file with one more block."""
    return zlib.crc32(head, checksum)


class BlockEncoder:
    """Rows as blocks of about `size_max` bytes, one after the other in the same buffer."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._buffer = bytearray()

    def blocks(self, batch: ColumnBatch) -> Iterator[tuple[int, bytes, memoryview]]:
        """(rows, head, the whole block); each is valid until the next one is asked for."""
        _, largest = measure_batch(batch)
        table = encode_table(batch.queues)
        start = HEAD_SIZE + len(table)
        needed = max(self._size_max, start + largest + _SPARE_SIZE)
        if len(self._buffer) < needed:
            self._buffer = bytearray(needed)
        buffer, row = self._buffer, 0
        buffer[HEAD_SIZE:start] = table
        with memoryview(buffer) as view:
            while row < batch.count:
                # Each block counts its own records per queue.
                ordinals = memoryview(array("q", bytes(8 * len(batch.queues))))
                after, end = encode_batch(
                    batch, row, ordinals, 0, buffer, start, len(buffer), _TEMPLATE
                )
                head = encode_head(table, view[start:end], after - row)
                buffer[:HEAD_SIZE] = head
                yield after - row, head, view[:end]
                row = after


def parse_block_at(staging_id: str, view: memoryview, position: int) -> StagedBlock:
    """The block that begins there; its records are not looked at. Raises `StagingRefused`."""
    if len(view) - position < HEAD_SIZE:
        raise StagingRefused(f"{staging_id}: a block header is cut")
    head = bytes(view[position : position + HEAD_SIZE])
    magic, table_size, records_size, count, checksum = _HEAD.unpack(head)
    table_at = position + HEAD_SIZE
    records_at = table_at + table_size
    if magic != _MAGIC or records_at + records_size > len(view):
        raise StagingRefused(f"{staging_id}: a block is damaged or cut")
    try:
        table: Any = msgpack.unpackb(bytes(view[table_at:records_at]), use_list=False)
    except ValueError as error:
        # The lengths in the head are covered by the checksum of the file only, which comes last.
        raise StagingRefused(f"{staging_id}: a queue table is damaged: {error}") from error
    return StagedBlock(head, table, count, checksum, records_at, records_at + records_size)


def is_whole_block(view: memoryview, position: int, until: int) -> bool:
    """Whether the block that begins there ends at `until` or before, if its head is to be believed.

    Damaged heads count as whole: whoever parses them says what is wrong.
    """
    if until - position < HEAD_SIZE:
        return False
    magic, table_size, records_size, _, _ = _HEAD.unpack_from(view, position)
    end: int = position + HEAD_SIZE + table_size + records_size
    return bool(magic != _MAGIC) or end <= until


def check_block(staging_id: str, view: memoryview, position: int, block: StagedBlock) -> None:
    """Raise `StagingRefused` unless the content is what was written."""
    table_at = position + HEAD_SIZE
    # Given back before anything is raised: a map with pieces of it in use cannot be closed.
    with view[table_at : block.records_at] as table, view[block.records_at : block.end] as records:
        checksum = block_checksum(table, records)
    if checksum != block.checksum:
        raise StagingRefused(f"{staging_id}: a block fails its checksum")
