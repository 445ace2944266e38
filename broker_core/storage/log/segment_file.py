"""One fixed-size commit-log file: the map, its write position and its readers.

Owns the open file. A segment is named by the log position of its first byte. Appends store into
`target` (the map, or a write buffer of the pool) and then call `stored`; readers hold the segment
while they use its bytes, and a retired segment closes when the last reader leaves.
"""

from __future__ import annotations

from broker_core.storage.files.file_system import FileSystem, StoreFile
from broker_core.storage.log.write_buffer_pool import WriteBuffer

NAME_DIGITS = 20
_ZEROS = bytes(1 << 20)


def segment_name(base: int) -> str:
    """`0` → `00000000000000000000`."""
    return f"{base:0{NAME_DIGITS}d}"


class Segment:
    """Positions inside are relative to `base`; `wrote >= committed`."""

    __slots__ = (
        "_buffer",
        "_readers",
        "_retired",
        "_view",
        "base",
        "committed",
        "file",
        "size",
        "wrote",
    )

    def __init__(self, file: StoreFile, base: int, size: int, wrote: int = 0) -> None:
        self.file = file
        self.base = base
        self.size = size
        self.wrote = wrote
        self.committed = wrote
        self._view: memoryview | None = None
        self._buffer: WriteBuffer | None = None
        self._readers = 0
        self._retired = False

    @property
    def view(self) -> memoryview:
        """The mapped file; readers may look at bytes below `committed` only."""
        if self._view is None:
            self._view = self.file.buffer()
        return self._view

    def map(self) -> None:
        """Map the file now, so that a failure does not surface in a later append or read."""
        if self._view is None:
            self._view = self.file.buffer()

    @property
    def target(self) -> memoryview:
        """Where appends store their bytes."""
        if self._buffer is not None:
            return self._buffer.view
        return self.view if self._view is None else self._view

    def use_buffer(self, buffer: WriteBuffer) -> None:
        """Append to process memory; `commit` copies it to the file."""
        self._buffer = buffer

    @property
    def buffered(self) -> bool:
        """Whether appends go to a write buffer first."""
        return self._buffer is not None

    def stored(self, until: int) -> None:
        """Bytes up to `until` were stored into `target`."""
        if self._buffer is None:
            self.file.wrote(self.wrote, until)
            self.committed = until
        self.wrote = until

    def write(self, data: memoryview) -> None:
        """Append `data` by a plain write instead of through the map."""
        self.file.write(self.wrote, data)
        self.written(self.wrote + len(data))

    def written(self, until: int) -> None:
        """Bytes up to `until` were written to the file."""
        self.wrote = self.committed = until

    def clear(self, start: int, end: int) -> None:
        """Store zeros; they are durable when it returns, unless a write buffer has them."""
        if start >= end:
            return
        if self._buffer is not None:
            self._buffer.view[start:end] = bytes(end - start)
            return
        _write_zeros(self.file, start, end)
        self.file.sync()

    def end_at(self, until: int) -> None:
        """Discard what was stored after `until`."""
        self.wrote = until
        self.committed = min(self.committed, until)

    def give_buffer_back(self) -> None:
        """Return the write buffer to its pool."""
        if self._buffer is not None:
            self._buffer.give_back()
            self._buffer = None

    def commit_bytes(self, start: int, until: int) -> None:
        """Copy `[start, until)` from the write buffer to the file. Called by the flush worker."""
        if self._buffer is not None and until > start:
            self.file.write(start, self._buffer.view[start:until])

    def committed_to(self, until: int) -> None:
        """The copy is done; a full file returns its buffer."""
        self.committed = max(self.committed, until)
        if self._buffer is not None and self.committed == self.size:
            self._buffer.give_back()
            self._buffer = None

    def hold(self) -> None:
        """Keep the bytes mapped while a reader uses them."""
        self._readers += 1

    def leave(self) -> None:
        """The reader is done; the last one closes a retired segment."""
        self._readers -= 1
        if self._retired and self._readers == 0:
            self._close()

    def retire(self) -> None:
        """Accept no new readers; close now or when the last one leaves."""
        self._retired = True
        if self._readers == 0:
            self._close()

    def _close(self) -> None:
        if self._view is not None:
            self._view.release()
            self._view = None
        if self._buffer is not None:
            self._buffer.give_back()
            self._buffer = None
        self.file.close()


def create_segment(
    file_system: FileSystem, directory: str, base: int, size: int, *, warm: bool
) -> Segment:
    """A new zero-filled file whose name and blocks are durable before it is used.

    A leftover of an earlier attempt (never used, so without data) is replaced.
    """
    path = f"{directory}/{segment_name(base)}"
    try:
        file = file_system.create(path)
    except FileExistsError:
        file_system.unlink(path)
        file = file_system.create(path)
    try:
        file.allocate(0, size)
        if warm:
            # Written blocks sync faster than merely allocated ones.
            _write_zeros(file, 0, size)
        file.sync()
        file_system.sync_dir(directory)
        segment = Segment(file, base, size)
        segment.map()
        file.expect_appends()
    except OSError:
        file.close()
        _remove_attempt(file_system, path)
        raise
    return segment


def _write_zeros(file: StoreFile, start: int, end: int) -> None:
    for at in range(start, end, len(_ZEROS)):
        file.write(at, _ZEROS[: min(len(_ZEROS), end - at)])


def _remove_attempt(file_system: FileSystem, path: str) -> None:
    try:
        file_system.unlink(path)
    except OSError:
        # The disk has failed already; recovery removes empty files after the end of the log.
        return
