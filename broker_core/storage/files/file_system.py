"""The interface to the disk. No other module of the package uses `os` or `mmap` for data.

Paths are relative to the store root and use `/`. Every call may raise `OSError`. The real
implementation is `posix_file_system.py`; the simulated one, which can cut the power at every
operation, is `tests/fakes/simulated_disk.py`.

What is durable when:
  bytes stored through `buffer()` (declared by `wrote`) or `write`   after `StoreFile.sync` returns
  a name that was created, renamed or removed                        after `sync_dir` of its parent
  the length of a file                                               after `StoreFile.sync` returns
After a `sync` that raised, the bytes may or may not be on disk; a second `sync` proves nothing.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class DiskUsage(NamedTuple):
    """Bytes of the partition that holds the store."""

    used: int
    usable: int


class StoreFile(Protocol):
    """One open file. Owned by its opener; closed once."""

    path: str

    @property
    def size(self) -> int:
        """Length in bytes."""

    def buffer(self) -> memoryview:
        """The whole file, mapped and writable; mapped at the first call, valid until `close`.

        Only allocated ranges may be stored to (see `allocate`). Release every slice of it before
        `close`.
        """

    def wrote(self, start: int, end: int) -> None:
        """Declare that `buffer()[start:end]` was stored to."""

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes from `start`; short only at the end of the file."""

    def read_into(self, start: int, target: memoryview) -> int:
        """`read` into the caller's memory; returns the number of bytes."""

    def write(self, start: int, data: bytes | bytearray | memoryview) -> None:
        """Store all of `data` at `start` without the map; extends the file when past its end."""

    def allocate(self, start: int, size: int) -> None:
        """Allocate disk blocks for `[start, start + size)`; new ones read as zeros.

        Extends the file when past its end. Existing bytes stay.
        """

    def resize(self, size: int) -> None:
        """Cut or extend to `size`; bytes past the old end read as zeros. Not while mapped."""

    def sync(self) -> None:
        """Make content and length durable (`fdatasync`)."""

    @property
    def sync_descriptor(self) -> int:
        """Descriptor whose `fdatasync` does what `sync` does; -1 when there is none."""

    def drop_cache(self) -> None:
        """Drop clean cached pages, so that the next read comes from the disk."""

    def expect_appends(self) -> None:
        """`buffer()` will be stored to sequentially: fault in single pages, without read-ahead.

        Otherwise the first store to a page waits for megabytes of zeros.
        """

    def load(self, start: int, end: int, *, singly: bool) -> None:
        """Pre-fault the pages of a range.

        The kernel keeps pages that are read sequentially as one large page, which is written back
        as a whole. `singly` keeps them separate.
        """

    def release(self, start: int, end: int) -> None:
        """Evict clean pages of `[start, end)` from memory."""

    def try_lock(self) -> bool:
        """Take the exclusive record lock on byte 0 (`fcntl.lockf`); False if another has it."""

    def modified_ms(self) -> int:
        """Last modification, epoch milliseconds."""

    def fingerprint(self) -> tuple[int, ...]:
        """Changes with the file, its length or its content, as far as the file system can tell."""

    def close(self) -> None:
        """Unmap and close. Raises `BufferError` while a slice of `buffer()` is alive."""


class FileSystem(Protocol):
    """Names and directories below one store root."""

    def create(self, path: str) -> StoreFile:
        """A new empty file (`O_CREAT | O_EXCL`); FileExistsError when the name is taken."""

    def open(self, path: str, *, writable: bool = True) -> StoreFile:
        """An existing regular file; FileNotFoundError when missing; never follows a link."""

    def exists(self, path: str) -> bool:
        """Whether the name exists (file or directory)."""

    def is_dir(self, path: str) -> bool:
        """Whether the name is a directory."""

    def list(self, path: str) -> list[str]:
        """Sorted names in a directory; empty when it does not exist. `""` is the root."""

    def make_dir(self, path: str) -> bool:
        """Create one directory (its parent exists); False when it exists already."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def rename(self, source: str, target: str) -> None:
        """Atomically replace `target` by `source`."""

    def unlink(self, path: str) -> None:
        """Remove a file; FileNotFoundError when missing."""

    def usage(self) -> DiskUsage:
        """Space on the partition of the store."""

    def boot_id(self) -> str:
        """Changes when the machine restarts, that is, when unsynced pages may be lost."""

    def close(self) -> None:
        """Close the descriptors of the file system itself."""
