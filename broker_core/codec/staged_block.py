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
from typing import Any, Final, NamedTuple, cast

import msgpack  # type: ignore[import-untyped]

from broker_core.codec.column_batch import Buffer, ColumnBatch, check_queues
from broker_core.codec.record_columns import body_crc, encode_batch, measure_batch
from broker_core.errors import InvalidArgument, StagingRefused

_HEAD: Final = struct.Struct(">4sIQQI")
_MAGIC: Final = b"RMQU"
_TEMPLATE: Final = -1
# The encoder leaves room for the blank at the end of a log file.
_SPARE_SIZE: Final = 8

HEAD_SIZE: Final = _HEAD.size
# 4,096 queues whose topics have 255 bytes take less.
TABLE_SIZE_MAX: Final = 4 << 20

QueueKeys = tuple[tuple[bytes, int], ...]


class BlockHead(NamedTuple):
    """What comes before the table of a block."""

    data: bytes
    table_size: int
    records_size: int
    record_count: int
    checksum: int

    @property
    def size(self) -> int:
        """Of the whole block."""
        return HEAD_SIZE + self.table_size + self.records_size


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


def parse_head(staging_id: str, data: bytes) -> BlockHead:
    """Raises `StagingRefused` for what is not the head of a block."""
    if len(data) < HEAD_SIZE:
        raise StagingRefused(f"{staging_id}: a block header is cut")
    magic, table_size, records_size, count, checksum = _HEAD.unpack(data)
    if magic != _MAGIC or table_size > TABLE_SIZE_MAX:
        raise StagingRefused(f"{staging_id}: a block is damaged")
    return BlockHead(data, table_size, records_size, count, checksum)


def parse_table(staging_id: str, data: bytes) -> QueueKeys:
    """The queues of a block; raises `StagingRefused`."""
    try:
        table: Any = msgpack.unpackb(data, use_list=False)
        check_queues(table)
    except (ValueError, InvalidArgument) as error:
        # The lengths in the head are covered by the checksum of the file only, which comes last.
        raise StagingRefused(f"{staging_id}: a queue table is damaged: {error}") from error
    return cast("QueueKeys", table)
