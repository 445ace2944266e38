"""Reads staging files into private memory, so that the bytes that were checked are used.

Another process may still write to a staging file. A memory map of it could change while the broker
uses it, or kill the broker (SIGBUS). So each block is read in one piece when it is needed, and its
checksum is compared afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker_core.codec.records.staged_block import (
    HEAD_SIZE,
    BlockHead,
    QueueKeys,
    block_checksum,
    join_heads,
    parse_head,
    parse_table,
)
from broker_core.errors import StagingRefused
from broker_core.storage.files.file_system import StoreFile

# Larger buffers are freed after use.
_KEPT_SIZE_MAX: Final = 4 << 20


class PrivateMemory:
    """A reusable buffer for one block. One thread at a time."""

    def __init__(self) -> None:
        self._room = memoryview(b"")

    def take(self, size: int) -> memoryview:
        """A buffer of `size` bytes; invalidates the one before."""
        if size > _KEPT_SIZE_MAX:
            return memoryview(bytearray(size))
        if len(self._room) < size:
            self._room = memoryview(bytearray(max(size, min(2 * size, _KEPT_SIZE_MAX))))
        return self._room[:size]


class ReadSoFar(NamedTuple):
    """How far a staging file was read; comparable with a `StagedPart`."""

    position: int
    record_count: int
    checksum: int


NOTHING_READ: Final = ReadSoFar(0, 0, 0)


class StagedRun:
    """The records of one block, as a record run for `append_group`.

    Valid while the file is open. `queues` are those of the block's table.
    """

    __slots__ = ("_at", "_file", "_head", "_table", "queues", "size", "staging_id")

    def __init__(self, staging_id: str, file: StoreFile, at: int, head: BlockHead) -> None:
        self.staging_id = staging_id
        self.size = head.records_size
        """Bytes of the records."""
        self._file = file
        self._head = head
        self._at = at
        self._table = _read(staging_id, file, at + HEAD_SIZE, head.table_size)
        self.queues: QueueKeys = parse_table(staging_id, self._table)

    def load(self, memory: PrivateMemory | None = None) -> memoryview:
        """Read the records; raises `StagingRefused` if the file has changed.

        On any thread. Valid until `memory` is used again.
        """
        table_size = self._head.table_size
        data = (memory or PrivateMemory()).take(table_size + self.size)
        try:
            count = self._file.read_into(self._at + HEAD_SIZE, data)
        except OSError as error:
            raise StagingRefused(f"{self.staging_id} cannot be read: {error}") from error
        table, records = data[:table_size], data[table_size:]
        if count < len(data) or table != self._table:
            raise StagingRefused(f"{self.staging_id}: a block was cut or changed")
        if block_checksum(table, records) != self._head.checksum:
            raise StagingRefused(f"{self.staging_id}: a block fails its checksum")
        return records


def staged_runs(
    staging_id: str,
    file: StoreFile,
    size: int,
    before: ReadSoFar = NOTHING_READ,
    *,
    may_end_early: bool = False,
    block_size_max: int = 1 << 62,
) -> Iterator[tuple[StagedRun, ReadSoFar]]:
    """Yield the blocks of the first `size` bytes; records are not checked.

    `may_end_early`: ignore a last block that reaches beyond `size`, which is still being written.
    """
    position, count, checksum = before
    while position < size:
        if may_end_early and size - position < HEAD_SIZE:
            return
        head = parse_head(staging_id, _read(staging_id, file, position, HEAD_SIZE))
        end = position + head.size
        if end > size and may_end_early:
            return
        if end > size or head.records_size > block_size_max:
            raise StagingRefused(f"{staging_id}: a block is cut, or too large")
        run = StagedRun(staging_id, file, position, head)
        count += head.record_count
        checksum = join_heads(head.data, checksum)
        position = end
        yield run, ReadSoFar(position, count, checksum)


def _read(staging_id: str, file: StoreFile, start: int, size: int) -> bytes:
    data = file.read(start, size)
    if len(data) < size:
        raise StagingRefused(f"{staging_id}: a block is cut")
    return data
