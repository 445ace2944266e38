"""A staging file that its writer writes itself, because the broker is on the same machine.

The broker names its directory to writers that come over the loopback interface. The writer trusts
it no further: before it opens the file it compares the machine and the id of the store that it
finds there, and the file has a name of one form only. So no answer leads it to any other file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from broker_core.codec.column_batch import ColumnBatch
from broker_core.codec.staged_block import BlockEncoder, join_heads
from broker_core.errors import StoreFormatUnsupported, StoreUnusable
from broker_core.storage.file_system import StoreFile
from broker_core.storage.posix_file_system import PosixFileSystem
from broker_core.storage.store_state import stored_id

STAGING_ID: Final = re.compile(r"[0-9a-f]{32}")


def open_stage_file(
    root: str, staging_id: str, block_size: int, store_id: str = "", boot_id: str = ""
) -> StageFile | None:
    """None when the broker is elsewhere after all, or the directory is not the store it names."""
    if not root.startswith("/") or not STAGING_ID.fullmatch(staging_id):
        return None
    try:
        with contextlib.closing(PosixFileSystem(root, create=False)) as file_system:
            if file_system.boot_id() != boot_id or stored_id(file_system) != store_id:
                return None
            return StageFile(file_system.open(f"staging/{staging_id}"), block_size)
    except (OSError, StoreUnusable, StoreFormatUnsupported):
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
