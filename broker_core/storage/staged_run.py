"""Reads staging files into private memory: what was checked is what is used.

A staging file may have another writer, one on this machine that has not closed it or a stray one.
A map of it would change, or end the process, while the broker works with it. Each block is read
when it is needed, in one piece, and its checksum is compared after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker_core.codec.staged_block import (
    HEAD_SIZE,
    BlockHead,
    QueueKeys,
    block_checksum,
    join_heads,
    parse_head,
    parse_table,
)
from broker_core.errors import StagingRefused
from broker_core.storage.file_system import StoreFile

# Larger pieces are given back after use.
_KEPT_SIZE_MAX: Final = 4 << 20


class PrivateMemory:
    """Room for one piece at a time, used again for the next one. One thread at a time."""

    def __init__(self) -> None:
        self._room = memoryview(b"")

    def take(self, size: int) -> memoryview:
        """Overwrites the piece that was taken before."""
        if size > _KEPT_SIZE_MAX:
            return memoryview(bytearray(size))
        if len(self._room) < size:
            self._room = memoryview(bytearray(max(size, min(2 * size, _KEPT_SIZE_MAX))))
        return self._room[:size]


class ReadSoFar(NamedTuple):
    """How far a staged file was read, and what was found up to there."""

    position: int
    record_count: int
    checksum: int


NOTHING_READ: Final = ReadSoFar(0, 0, 0)


class StagedRun:
    """The records of one block: a run of `append_group` that is in a file.

    Valid as long as the file is open. `queues` are those that the table names.
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
        """The records as they were staged; `StagingRefused` when the file has changed.

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
    """Block after block of the first `size` bytes; their records are not looked at.

    `may_end_early`: a last block that reaches beyond `size` is still being written.
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
