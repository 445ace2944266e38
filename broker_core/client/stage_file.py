"""A staging file that its writer writes itself, because the broker is on the same machine.

The broker names its directory to writers that it takes for neighbours. The file has a name that
nobody can guess and exists already: whoever can open it there, and as its owner only can, is one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from broker_core.codec.column_batch import ColumnBatch
from broker_core.codec.staged_block import BlockEncoder, join_heads
from broker_core.errors import StoreUnusable
from broker_core.storage.file_system import StoreFile
from broker_core.storage.posix_file_system import PosixFileSystem


def open_stage_file(root: str, staging_id: str, block_size: int) -> StageFile | None:
    """None when the broker is elsewhere after all, or belongs to somebody else."""
    try:
        with contextlib.closing(PosixFileSystem(root, create=False)) as file_system:
            return StageFile(file_system.open(f"staging/{staging_id}"), block_size)
    except (OSError, StoreUnusable):
        return None


class StageFile:
    """Blocks one after the other. `size`, `count` and `checksum` are what the broker is told."""

    def __init__(self, file: StoreFile, block_size: int) -> None:
        self._file = file
        self._encoder = BlockEncoder(block_size)
        self._is_open = True
        self.size = self.count = self.checksum = 0

    def append(self, batch: ColumnBatch) -> Iterator[int]:
        """Write the rows block by block; after each one, the size of the file.

        Raises `OSError` when the disk is full.
        """
        for rows, head, block in self._encoder.blocks(batch):
            self._file.write(self.size, block)
            self.size += len(block)
            self.count += rows
            self.checksum = join_heads(head, self.checksum)
            yield self.size

    def close(self) -> None:
        """Nothing more comes; may be called again."""
        if self._is_open:
            self._is_open = False
            self._file.close()
