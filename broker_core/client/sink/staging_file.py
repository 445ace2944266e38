"""A staging file that the client writes itself, because the broker is on the same machine.

The broker sends its directory to clients that connect over loopback. The client verifies it: it
compares boot id and store id before it opens the file, and accepts one form of file name only. So
no answer can make it write to any other file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.staged_block import BlockEncoder, join_heads
from broker_core.errors import StoreFormatUnsupported, StoreUnusable
from broker_core.storage.files.file_system import StoreFile
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.storage.state.store_state import stored_id

STAGING_ID: Final = re.compile(r"[0-9a-f]{32}")


def open_staging_file(
    root: str, staging_id: str, block_size: int, store_id: str = "", boot_id: str = ""
) -> StagingFile | None:
    """None if the broker is on another machine, or the directory is not its store."""
    if not root.startswith("/") or not STAGING_ID.fullmatch(staging_id):
        return None
    try:
        with contextlib.closing(PosixFileSystem(root, create=False)) as file_system:
            if file_system.boot_id() != boot_id or stored_id(file_system) != store_id:
                return None
            return StagingFile(file_system.open(f"staging/{staging_id}"), block_size)
    except (OSError, StoreUnusable, StoreFormatUnsupported):
        return None


class StagingFile:
    """Writes blocks. `size`, `count` and `checksum` are sent to the broker with STAGE_SEAL."""

    def __init__(self, file: StoreFile, block_size: int) -> None:
        self._file = file
        self._encoder = BlockEncoder(block_size)
        self._is_open = True
        self.size = self.count = self.checksum = 0

    @property
    def digest(self) -> int:
        """Digest of the rows, see `digest_rows`."""
        return self._encoder.digest

    def append(self, batch: ColumnBatch) -> Iterator[int]:
        """Write the rows block by block; yields the size of the file after each one.

        Raises `OSError`, for example when the disk is full.
        """
        for rows, head, block in self._encoder.blocks(batch):
            self._file.write(self.size, block)
            self.size += len(block)
            self.count += rows
            self.checksum = join_heads(head, self.checksum)
            yield self.size

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if self._is_open:
            self._is_open = False
            self._file.close()
