"""One open file of the simulated disk."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from broker_core.errors import InvalidArgument
from tests.fakes.disk_nodes import FileNode

if TYPE_CHECKING:
    from tests.fakes.simulated_disk import SimulatedDisk


class SimulatedFile:
    """Implements `broker_core.storage.files.file_system.StoreFile`."""

    __slots__ = ("_closed", "_disk", "_mapped", "_node", "_view", "_writable", "path")

    def __init__(self, disk: SimulatedDisk, path: str, node: FileNode, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._writable = writable
        self._closed = False
        self._mapped = False
        self._view: memoryview | None = None

    @property
    def size(self) -> int:
        self._check_open()
        return len(self._node.content)

    def buffer(self) -> memoryview:
        self._check_open()
        node = self._node
        if not self._mapped:
            self._fail_if(self._disk.operation("buffer", self.path))
            if len(node.content) == 0:
                return memoryview(bytearray())
            self._mapped = True
            node.map_count += 1
            self._disk.mapped.add(node)
        if self._view is None or _is_released(self._view):
            view = memoryview(node.writable())
            self._view = view if self._writable else view.toreadonly()
        return self._view

    def wrote(self, start: int, end: int) -> None:
        self._disk.operation("wrote", self.path)
        assert self._mapped, f"{self.path} is not mapped"
        assert 0 <= start <= end <= len(self._node.content), f"{start}:{end} of {self.path}"
        for hole_start, hole_end in self._node.holes:
            # On a real disk this is a SIGBUS as soon as the disk is full.
            assert end <= hole_start or hole_end <= start, f"store to a hole of {self.path}"
        self._stored(start, end)

    def read(self, start: int, size: int) -> bytes:
        self._check_open()
        self._disk.read_operation("read", self.path)
        if start < 0 or size < 0:
            self._fail(errno.EINVAL)
        return bytes(self._node.content[start : start + size])

    def read_into(self, start: int, target: memoryview) -> int:
        data = self.read(start, len(target))
        target[: len(data)] = data
        return len(data)

    def write(self, start: int, data: bytes | bytearray | memoryview) -> None:
        self._check_open()
        self._fail_if(self._disk.operation("write", self.path))
        self._check_writable()
        if start < 0:
            self._fail(errno.EINVAL)
        content = bytes(data)
        end = start + len(content)
        if not content:
            return
        node = self._node
        old_size = len(node.content)
        self._extend(end)
        if start > old_size:
            node.holes = (*node.holes, (old_size, start))
        node.fill_holes(start, end)
        node.writable()[start:end] = content
        self._stored(start, end)

    def allocate(self, start: int, size: int) -> None:
        self._check_open()
        if start < 0 or size < 0:
            raise InvalidArgument(f"cannot allocate {size} bytes at {start} of {self.path}")
        if size == 0:
            return
        self._fail_if(self._disk.operation("allocate", self.path))
        self._check_writable()
        old_size = len(self._node.content)
        self._extend(start + size)
        if start > old_size:
            self._node.holes = (*self._node.holes, (old_size, start))
        self._node.fill_holes(start, start + size)

    def resize(self, size: int) -> None:
        self._check_open()
        if self._node.map_count:
            raise BufferError(f"{self.path} is mapped and cannot change its length")
        self._fail_if(self._disk.operation("resize", self.path))
        # The answer of ftruncate to a descriptor that is not open for writing.
        self._check_writable(errno.EINVAL)
        if size < 0:
            self._fail(errno.EINVAL)
        old_size = len(self._node.content)
        if size > old_size:
            self._node.holes = (*self._node.holes, (old_size, size))
        if size != old_size:
            self._node.set_length(size)
            self._stored(size, size)

    @property
    def sync_descriptor(self) -> int:
        """None: syncing is more than a system call here."""
        return -1

    def sync(self) -> None:
        self._check_open()
        fault = self._disk.operation("sync", self.path)
        if fault is not None:
            self._node.sync_failed(self._disk.seeded())
            self._disk.changed()
            raise fault
        if self._node.synced():
            self._disk.changed()

    def drop_cache(self) -> None:
        self._check_open()
        self._fail_if(self._disk.operation("drop_cache", self.path))
        self._node.cache_dropped()

    def expect_appends(self) -> None:
        self._check_open()

    def load(self, start: int, end: int, *, singly: bool) -> None:
        self._check_open()

    def release(self, start: int, end: int) -> None:
        self._check_open()

    def try_lock(self) -> bool:
        self._check_open()
        self._fail_if(self._disk.operation("try_lock", self.path))
        self._check_writable()
        if self._node.lock_owner is None:
            self._node.lock_owner = self
        return self._node.lock_owner is self

    def modified_ms(self) -> int:
        self._check_open()
        return self._node.modified_ms

    def fingerprint(self) -> tuple[int, ...]:
        self._check_open()
        return id(self._node), len(self._node.content), self._node.modified_ms

    def close(self) -> None:
        if self._closed or self._disk.crashed:
            return
        node = self._node
        if self._view is not None:
            self._view.release()
            self._view = None
        if self._mapped:
            if node.map_count == 1:
                _check_no_views(node.writable())
                self._disk.mapped.discard(node)
            node.map_count -= 1
            self._mapped = False
        if node.lock_owner is self:
            node.lock_owner = None
        self._closed = True

    def _extend(self, end: int) -> None:
        growth = end - len(self._node.content)
        if growth <= 0:
            return
        if self._node.map_count:
            raise BufferError(f"{self.path} is mapped and cannot change its length")
        self._disk.charge(self.path, growth)
        self._node.set_length(end)
        self._stored(end, end)

    def _stored(self, start: int, end: int) -> None:
        self._node.touched(start, end)
        self._node.modified_ms = self._disk.clock.wall_ms()
        self._disk.changed()

    def _check_open(self) -> None:
        if self._closed:
            self._fail(errno.EBADF)

    def _check_writable(self, error_code: int = errno.EBADF) -> None:
        if not self._writable:
            self._fail(error_code)

    def _fail(self, error_code: int) -> None:
        raise OSError(error_code, os.strerror(error_code), self.path)

    def _fail_if(self, fault: OSError | None) -> None:
        if fault is not None:
            raise fault


def _is_released(view: memoryview) -> bool:
    try:
        return view.nbytes < 0
    except ValueError:
        return True


def _check_no_views(content: bytearray) -> None:
    """`BufferError` while a slice is alive: a length that is in use cannot change, even for this
    short moment."""
    content.append(content.pop())
