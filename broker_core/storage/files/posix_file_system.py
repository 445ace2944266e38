"""The real file system below one store root.

Owns the descriptor of the root. Every path component is opened relative to its parent's descriptor
and never through a link, so a name planted in the store cannot lead a read or a write outside of
it. Never decides what is stored where, and never retries a failed sync.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import mmap
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from broker_core.errors import InvalidArgument, StoreUnusable
from broker_core.storage.files.file_system import DiskUsage
from broker_core.storage.files.record_locks import FileKey, record_locks
from broker_core.storage.files.store_paths import path_components

_log = logging.getLogger(__name__)

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
# O_NONBLOCK: if a FIFO appears between the check and the open, the open must not block.
_FILE_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ZEROS = bytes(1 << 20)
_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
# Sequential reads of this size: the kernel detects a stream.
_LOAD_SIZE = 64 << 10
_FALLOCATE_MISSING = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class PosixFile:
    """One open regular file; implements `file_system.StoreFile`."""

    __slots__ = ("_descriptor", "_full_path", "_key", "_map", "_view", "_writable", "path")

    def __init__(
        self, path: str, full_path: str, descriptor: int, key: FileKey, writable: bool
    ) -> None:
        self.path = path
        self._full_path = full_path
        self._descriptor = descriptor
        self._key = key
        self._writable = writable
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None

    @property
    def size(self) -> int:
        """Length in bytes."""
        with self._naming():
            return os.fstat(self._descriptor).st_size

    def buffer(self) -> memoryview:
        """The whole file, mapped; read-only when the file was opened so."""
        if self._map is None:
            size = self.size
            if size == 0:
                # An empty range cannot be mapped.
                return memoryview(bytearray())
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if self._writable else 0)
            with self._naming():
                self._map = mmap.mmap(self._descriptor, size, mmap.MAP_SHARED, protection)
        with contextlib.suppress(ValueError):  # the view was released
            if self._view is not None and self._view.nbytes >= 0:
                return self._view
        self._view = memoryview(self._map)
        return self._view

    def wrote(self, start: int, end: int) -> None:
        """Nothing to do: the kernel tracks dirty pages itself."""

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes from `start`; short only at the end of the file."""
        with self._naming():
            content = os.pread(self._descriptor, size, start)
            while 0 < len(content) < size:
                more = os.pread(self._descriptor, size - len(content), start + len(content))
                if not more:
                    break
                content += more
            return content

    def read_into(self, start: int, target: memoryview) -> int:
        """Fill `target` from `start` on; less of it only at the end of the file."""
        with self._naming():
            done = 0
            while done < len(target):
                count = os.preadv(self._descriptor, (target[done:],), start + done)
                if count == 0:
                    break
                done += count
            return done

    def write(self, start: int, data: bytes | bytearray | memoryview) -> None:
        """Store all of `data` at `start` without the map."""
        with memoryview(data) as view, view.cast("B") as content, self._naming():
            self._check_length_is_free(start + len(content))
            write_descriptor(self._descriptor, start, content)

    def allocate(self, start: int, size: int) -> None:
        """Allocate disk blocks for `[start, start + size)`."""
        if start < 0 or size < 0:
            raise InvalidArgument(f"cannot allocate {size} bytes at {start} of {self.path}")
        if size == 0:
            return
        with self._naming():
            self._check_length_is_free(start + size)
            try:
                # Not every platform has the call, not every file system supports it.
                os.posix_fallocate(self._descriptor, start, size)
            except (AttributeError, OSError) as error:
                if isinstance(error, OSError) and error.errno not in _FALLOCATE_MISSING:
                    raise
                fill_holes_with_zeros(self._descriptor, start, start + size)

    def resize(self, size: int) -> None:
        """Cut or extend to `size`; `BufferError` while mapped."""
        if self._map is not None:
            raise BufferError(f"{self.path} is mapped and cannot change its length")
        with self._naming():
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Make content and length durable."""
        with self._naming():
            if _FULL_SYNC is not None:
                # Where this exists (macOS), fsync stops at the cache of the drive.
                fcntl.fcntl(self._descriptor, _FULL_SYNC)
            else:
                os.fdatasync(self._descriptor)

    @property
    def sync_descriptor(self) -> int:
        """Descriptor whose `fdatasync` does what `sync` does; -1 when there is none."""
        return self._descriptor if _FULL_SYNC is None else -1

    def drop_cache(self) -> None:
        """Drop clean cached pages that no map holds."""
        with self._naming(), contextlib.suppress(AttributeError):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def expect_appends(self) -> None:
        """Switch off read-ahead for stores to the map, and the large pages that come from it."""
        with self._naming():
            self.buffer()
            if self._map is not None:
                self._map.madvise(mmap.MADV_RANDOM)

    def load(self, start: int, end: int, *, singly: bool) -> None:
        """Read the range piece by piece; `singly` without read-ahead, so that pages stay small."""
        with self._naming():
            if singly:
                self._advise("POSIX_FADV_RANDOM")
            try:
                for at in range(start, end, _LOAD_SIZE):
                    os.pread(self._descriptor, min(_LOAD_SIZE, end - at), at)
            finally:
                if singly:
                    # Other code reads old messages through this descriptor sequentially.
                    self._advise("POSIX_FADV_NORMAL")

    def _advise(self, name: str) -> None:
        with contextlib.suppress(AttributeError):
            os.posix_fadvise(self._descriptor, 0, 0, getattr(os, name))

    def release(self, start: int, end: int) -> None:
        """Evict clean pages of a range; they are read again when needed."""
        start -= start % mmap.PAGESIZE
        with self._naming(), contextlib.suppress(AttributeError):
            if self._map is not None:
                self._map.madvise(mmap.MADV_DONTNEED, start, end - start)
            os.posix_fadvise(self._descriptor, start, end - start, os.POSIX_FADV_DONTNEED)

    def try_lock(self) -> bool:
        """Take the exclusive record lock on byte 0; False if another open file has it."""
        with self._naming():
            return record_locks.take(self._key, self._descriptor)

    def modified_ms(self) -> int:
        """Last modification, epoch milliseconds."""
        with self._naming():
            return os.fstat(self._descriptor).st_mtime_ns // 1_000_000

    def fingerprint(self) -> tuple[int, ...]:
        """Includes the inode change time, which no call can set."""
        with self._naming():
            found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def close(self) -> None:
        """Unmap and close. After a `BufferError` the file stays open; call `buffer()` again."""
        if self._descriptor < 0:
            return
        if self._view is not None:
            self._view.release()
            self._view = None
        record_locks.close(self._key, self._descriptor, self._map)
        self._map = None
        self._descriptor = -1

    def _check_length_is_free(self, end: int) -> None:
        if self._map is not None and end > len(self._map):
            raise BufferError(f"{self.path} is mapped and cannot change its length")

    def _naming(self) -> contextlib.AbstractContextManager[None]:
        if self._descriptor < 0:
            # Also keeps -1 away from mmap, where it means anonymous memory.
            raise OSError(errno.EBADF, "file is closed", self._full_path)
        return _naming(self._full_path)


class PosixFileSystem:
    """Names and directories below one root; implements `file_system.FileSystem`."""

    def __init__(
        self,
        root: str | Path,
        create: bool = True,
        make_file: Callable[[str, str, int, FileKey, bool], PosixFile] = PosixFile,
    ) -> None:
        self.root = str(root)
        self._make_file = make_file
        self._root_descriptor = _open_root(Path(root), create)
        self._boot_id = _read_boot_id()

    def create(self, path: str) -> PosixFile:
        """A new empty file that only its owner can read."""
        flags = _FILE_FLAGS | os.O_CREAT | os.O_EXCL | os.O_RDWR
        with self._at(path) as (directory, name):
            descriptor = os.open(name, flags, _FILE_MODE, dir_fd=directory)
        return self._take(path, descriptor, writable=True, created=True)

    def open(self, path: str, *, writable: bool = True) -> PosixFile:
        """An existing regular file with one name; anything else is refused."""
        flags = _FILE_FLAGS | (os.O_RDWR if writable else os.O_RDONLY)
        with self._at(path) as (directory, name):
            # Checked before opening, because opening a device can have an effect.
            self._check_regular(path, os.stat(name, dir_fd=directory, follow_symlinks=False))
            descriptor = os.open(name, flags, dir_fd=directory)
        return self._take(path, descriptor, writable=writable, created=False)

    def exists(self, path: str) -> bool:
        """Whether the name exists."""
        return self._status(path) is not None

    def is_dir(self, path: str) -> bool:
        """Whether the name is a directory; a link to one is not."""
        status = self._status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def list(self, path: str) -> list[str]:
        """Sorted names in a directory; empty when it does not exist."""
        try:
            with self._directory(path_components(path)) as directory:
                return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def make_dir(self, path: str) -> bool:
        """Create one directory that only its owner can enter; False when it exists already."""
        components = path_components(path)
        if not components:
            return False
        with self._at(path) as (directory, name):
            try:
                os.mkdir(name, _DIRECTORY_MODE, dir_fd=directory)
            except FileExistsError:
                if not self.is_dir(path):
                    raise
                return False
        with self._directory(components) as directory:
            os.fchmod(directory, _DIRECTORY_MODE)
        return True

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        with self._directory(path_components(path)) as directory, _naming(self._full(path)):
            os.fsync(directory)

    def rename(self, source: str, target: str) -> None:
        """Atomically replace `target` by `source`."""
        with self._at(target) as (to_directory, new), self._at(source) as (from_directory, old):
            os.rename(old, new, src_dir_fd=from_directory, dst_dir_fd=to_directory)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        with self._at(path) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def usage(self) -> DiskUsage:
        """Space on the partition of the store, as an unprivileged process sees it."""
        status = os.fstatvfs(self._root_descriptor)
        used_blocks = status.f_blocks - status.f_bfree
        return DiskUsage(used_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

    def boot_id(self) -> str:
        """Changes when the machine restarts."""
        return self._boot_id

    def close(self) -> None:
        """Close the root; open files stay with their owners."""
        if self._root_descriptor >= 0:
            os.close(self._root_descriptor)
            self._root_descriptor = -1

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    @contextlib.contextmanager
    def _directory(self, components: tuple[str, ...]) -> Iterator[int]:
        """The descriptor of a directory below the root, reached without following a link."""
        with _naming(self.root):
            directory = os.dup(self._root_descriptor)
        try:
            for depth, name in enumerate(components, start=1):
                full_path = self._full("/".join(components[:depth]))
                child = _open_directory(name, directory, full_path)
                os.close(directory)
                directory = child
            yield directory
        finally:
            os.close(directory)

    @contextlib.contextmanager
    def _at(self, path: str) -> Iterator[tuple[int, str]]:
        """(descriptor of the parent, last component); errors inside name the whole path."""
        components = path_components(path)
        if not components:
            raise InvalidArgument(f"path {path!r}: the root itself is not a name in the store")
        with self._directory(components[:-1]) as directory, _naming(self._full(path)):
            yield directory, components[-1]

    def _status(self, path: str) -> os.stat_result | None:
        try:
            if path == "":
                return os.fstat(self._root_descriptor)
            with self._at(path) as (directory, name):
                return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _take(self, path: str, descriptor: int, *, writable: bool, created: bool) -> PosixFile:
        try:
            status = os.fstat(descriptor)
            self._check_regular(path, status)
            if created and status.st_mode & 0o777 != _FILE_MODE:
                os.fchmod(descriptor, _FILE_MODE)
        except BaseException:
            os.close(descriptor)
            raise
        key = (status.st_dev, status.st_ino)
        return self._make_file(path, self._full(path), descriptor, key, writable)

    def _check_regular(self, path: str, status: os.stat_result) -> None:
        full_path = self._full(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), full_path)
        if stat.S_ISLNK(status.st_mode):
            raise _refused(full_path, "is a symbolic link")
        if not stat.S_ISREG(status.st_mode):
            raise _refused(full_path, "is not a regular file")
        if status.st_nlink > 1:
            raise _refused(full_path, f"has {status.st_nlink} hard links, one is expected")


@contextlib.contextmanager
def _naming(full_path: str) -> Iterator[None]:
    """Add the path to errors: calls by descriptor raise them without one."""
    try:
        yield
    except OSError as error:
        if "/" in str(error.filename):
            raise
        raise OSError(error.errno, error.strerror, full_path) from error


def _refused(full_path: str, reason: str) -> StoreUnusable:
    return StoreUnusable(f"{full_path}: {reason}")


def _open_directory(name: str, parent: int, full_path: str) -> int:
    with _naming(full_path):
        try:
            return os.open(name, _DIRECTORY_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            if not stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise
    raise _refused(full_path, "is a symbolic link")


def fill_holes_with_zeros(descriptor: int, start: int, end: int) -> None:
    """`posix_fallocate` for file systems without it: slower, with the same result."""
    old_size = os.fstat(descriptor).st_size
    block_size = os.fstatvfs(descriptor).f_bsize
    position = start
    while position < min(end, old_size):
        size = min(block_size - position % block_size, end - position, old_size - position)
        content = os.pread(descriptor, size, position)
        # A block with any other byte in it is not a hole.
        if content.count(0) == len(content):
            write_descriptor(descriptor, position, memoryview(content))
        position += size
    # If `start` is past the end, fill the gap before it as well.
    position = min(position, old_size)
    try:
        while position < end:
            size = min(len(_ZEROS), end - position)
            write_descriptor(descriptor, position, memoryview(_ZEROS)[:size])
            position += size
    except OSError:
        os.ftruncate(descriptor, old_size)
        raise


def write_descriptor(descriptor: int, start: int, content: memoryview | bytes) -> None:
    """Store all of `content` at `start`."""
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, content[done:], start + done)


def _open_root(root: Path, create: bool) -> int:
    """The descriptor of a directory that this process may write to."""
    try:
        created = create and _make_root(root)
        descriptor = os.open(root, _DIRECTORY_FLAGS)
    except FileNotFoundError:
        reason = "its parent directory does not exist" if create else "does not exist"
        raise _refused(str(root), reason) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refused(str(root), f"cannot be opened as a directory: {reason}") from error
    try:
        _check_root(root, os.fstat(descriptor), created)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _make_root(root: Path) -> bool:
    """Whether the directory is new; its name is durable either way.

    An earlier start may have died between making the name and syncing it.
    """
    try:
        root.mkdir(mode=_DIRECTORY_MODE)
        root.chmod(_DIRECTORY_MODE)
        created = True
    except FileExistsError:
        created = False
    # No permission to read the parent: the root was created by another user.
    with contextlib.suppress(PermissionError):
        parent = os.open(root.resolve().parent, _DIRECTORY_FLAGS)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
    return created


def _check_root(root: Path, status: os.stat_result, created: bool) -> None:
    effective = os.access in os.supports_effective_ids
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK, effective_ids=effective):
        raise _refused(str(root), "cannot be written by this user")
    if not created and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        _log.warning("%s can be written by others (mode %o)", root, status.st_mode & 0o777)
    if status.st_uid != os.geteuid():
        _log.warning("%s belongs to user %d, not to the running one", root, status.st_uid)


def _read_boot_id() -> str:
    with contextlib.suppress(OSError):
        return _BOOT_ID_PATH.read_text("ascii").strip()
    # A value that never matches means "pages may have been lost", the safe assumption.
    return f"unknown-{uuid.uuid4()}"
