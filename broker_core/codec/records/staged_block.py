"""A staged part: its record, and the blocks of the staging file that holds it.

    0   4  magic "RMQU"
    4   4  length of the queue table
    8   8  length of the records
    16  8  number of records
    24  4  CRC-32 of the table, continued from the checksum of the records
    28     queue table (msgpack), then template records (complete but for their log positions)

Beside the checksums, which tell whether a block is damaged, the rows of a batch have a digest
(`row_digest.py`), which tells whether a replay has the same rows.

The broker writes the file, or the client does if it runs on the broker's machine.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

import msgpack  # type: ignore[import-untyped]

from broker_core.codec.native import body_crc, encode_batch, measure_batch
from broker_core.codec.records.column_batch import TEMPLATE, Buffer, ColumnBatch, check_queues
from broker_core.codec.records.record_layout import BLANK_RESERVE
from broker_core.errors import InvalidArgument, StagingRefused

_HEAD: Final = struct.Struct(">4sIQQI")
_MAGIC: Final = b"RMQU"

HEAD_SIZE: Final = _HEAD.size
# More than 4,096 queues with topics of 255 bytes need.
TABLE_SIZE_MAX: Final = 4 << 20

QueueKeys = tuple[tuple[bytes, int], ...]


class StagedPart(NamedTuple):
    """What one task staged on one broker and sealed. Plain values: Spark pickles them.

    The only record of a staged part, from the task to the broker's publisher. Count, size and
    checksum must match the staging file when the part is published.
    """

    staging_id: str
    record_count: int
    size: int
    """Bytes of all blocks."""
    checksum: int
    """CRC-32 of all block heads."""
    broker_name: str = ""
    """The broker that has it. Clients set it; requests and brokers leave it empty."""


class BlockHead(NamedTuple):
    """Header of a block."""

    data: bytes
    table_size: int
    records_size: int
    record_count: int
    checksum: int

    @property
    def size(self) -> int:
        """Bytes of the whole block."""
        return HEAD_SIZE + self.table_size + self.records_size


def encode_table(queues: QueueKeys) -> bytes:
    """Queue table of a block."""
    table: bytes = msgpack.packb(queues)
    return table


def encode_head(table: bytes, records: Buffer, count: int, records_crc: int | None = None) -> bytes:
    """Header of a block; `records_crc` is the `body_crc` of the records, if it is known."""
    if records_crc is None:
        checksum = block_checksum(table, records)
    else:
        checksum = zlib.crc32(table, records_crc)
    return _HEAD.pack(_MAGIC, len(table), memoryview(records).nbytes, count, checksum)


def block_checksum(table: Buffer, records: Buffer) -> int:
    """CRC-32 of table and records."""
    return zlib.crc32(table, body_crc(records))


def join_heads(head: bytes, checksum: int = 0) -> int:
    """Checksum of a part after one more block."""
    return zlib.crc32(head, checksum)


class RunningDigest:
    """Digest of the rows that `encode_batch` has written."""

    def __init__(self) -> None:
        self.sum = array("Q", (0,))

    @property
    def value(self) -> int:
        """The digest so far, see `digest_rows`."""
        return self.sum[0]


class BlockEncoder:
    """Encodes rows as blocks of about `size_max` bytes, all in the same buffer."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._buffer = bytearray()
        self._digest = RunningDigest()

    @property
    def digest(self) -> int:
        """Digest of the rows of all blocks, see `digest_rows`."""
        return self._digest.value

    def blocks(self, batch: ColumnBatch) -> Iterator[tuple[int, bytes, memoryview]]:
        """Yield (rows, head, the whole block); each is valid until the next one is requested."""
        _, largest = measure_batch(batch)
        table = encode_table(batch.queues)
        start = HEAD_SIZE + len(table)
        needed = max(self._size_max, start + largest + BLANK_RESERVE)
        if len(self._buffer) < needed:
            self._buffer = bytearray(needed)
        buffer, row = self._buffer, 0
        buffer[HEAD_SIZE:start] = table
        with memoryview(buffer) as view:
            while row < batch.count:
                # Ordinals per queue start at 0 in each block.
                ordinals = memoryview(array("q", bytes(8 * len(batch.queues))))
                after, end = encode_batch(
                    batch, row, ordinals, 0, buffer, start, len(buffer), TEMPLATE, self._digest.sum
                )
                head = encode_head(table, view[start:end], after - row)
                buffer[:HEAD_SIZE] = head
                yield after - row, head, view[:end]
                row = after


def parse_head(staging_id: str, data: bytes) -> BlockHead:
    """Raises `StagingRefused` if `data` is not a block header."""
    if len(data) < HEAD_SIZE:
        raise StagingRefused(f"{staging_id}: a block header is cut")
    magic, table_size, records_size, count, checksum = _HEAD.unpack(data)
    if magic != _MAGIC or table_size > TABLE_SIZE_MAX:
        raise StagingRefused(f"{staging_id}: a block is damaged")
    return BlockHead(data, table_size, records_size, count, checksum)


def parse_table(staging_id: str, data: bytes) -> QueueKeys:
    """Raises `StagingRefused` for a damaged table."""
    try:
        table: Any = msgpack.unpackb(data, use_list=False)
        check_queues(table)
    except (ValueError, InvalidArgument) as error:
        # The lengths in the head are covered only by the part's checksum, which comes last.
        raise StagingRefused(f"{staging_id}: a queue table is damaged: {error}") from error
    return cast("QueueKeys", table)
