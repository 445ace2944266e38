"""A disk in memory whose power can be cut before every operation.

Implements `FileSystem` of `broker_core/storage/files`. Operations that change, sync, open, map or
lock are numbered from 1 and kept with the place that called them. A cut or an error can be asked
for at a number; what a cut can leave behind is in `crash_states.py`. Everything is a function of
the calls and the seed.
"""

from __future__ import annotations

import errno
import functools
import os
import random
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import PurePath
from types import CodeType
from typing import NamedTuple, NoReturn

from broker_core.errors import InvalidArgument
from broker_core.runtime.clock import Clock
from broker_core.storage.files.file_system import DiskUsage
from broker_core.storage.files.store_paths import path_components
from tests.fakes.crash_states import DEFAULT_LIMIT, CrashPoint, CrashState
from tests.fakes.disk_damage import DamageableDisk, walk
from tests.fakes.disk_nodes import DirectoryNode, FileNode, NameChange, Node, copied
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_file import SimulatedFile

_NAME_BYTES_MAX = 255
_UNLIMITED = 1 << 40
_NEVER = sys.maxsize
# A store through the map is not a call, so it cannot return an error.
_CANNOT_FAIL = frozenset({"wrote"})

_components = functools.lru_cache(maxsize=4096)(path_components)


class SimulatedCrash(BaseException):
    """The power is gone. Not an `Exception`, so that no handler of ours survives it."""


class OperationSite(NamedTuple):
    """Where in the code which kind of operation is done."""

    method: str
    path_class: str
    caller: str


class Operation(NamedTuple):
    """One numbered operation."""

    number: int
    method: str
    path: str
    site: OperationSite


class _Fault(NamedTuple):
    number: int
    error_code: int
    sticky: bool
    methods: Collection[str] | None


@functools.lru_cache(maxsize=4096)
def path_class(path: str) -> str:
    """`commitlog/0000` → `commitlog`, `checkpoint.tmp` → `checkpoint`, `""` → `root`."""
    return path.split("/", 1)[0].split(".", 1)[0] or "root"


@functools.lru_cache(maxsize=4096)
def _site(method: str, kind: str, code: CodeType) -> OperationSite:
    function = getattr(code, "co_qualname", code.co_name)
    return OperationSite(method, kind, f"{PurePath(code.co_filename).name}:{function}")


class SimulatedDisk(DamageableDisk):
    """One machine's disk as one process sees it."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        seed: int = 0,
        space_limit: int | None = None,
        zero_length_renames: bool = False,
        trace_reads: bool = False,
        crash_at: int | None = None,
    ) -> None:
        self.clock = ManualClock() if clock is None else clock
        self.seed = seed
        self.space_limit = space_limit
        self.zero_length_renames = zero_length_renames
        self.trace_reads = trace_reads
        self.reported_usage: DiskUsage | None = None
        self.on_operation: Callable[[int], None] | None = None
        self.crashed = False
        self.mapped: set[FileNode] = set()
        self._boot_number = 1
        self.root = DirectoryNode()
        self._pending: list[NameChange] = []
        self._trace: list[tuple[str, str, CodeType, int]] = []
        self._version = 0
        self._faults: list[_Fault] = []
        self._crash_at = _NEVER if crash_at is None else crash_at
        self._alarm = self._crash_at

    # Cutting the power, failing operations, looking at the trace.

    def crash_at(self, number: int) -> None:
        """Cut the power before operation `number`."""
        self._crash_at = number
        self._alarm = min(self._alarm, number)

    def fail(
        self,
        number: int,
        error_code: int,
        *,
        sticky: bool = False,
        methods: Collection[str] | None = None,
    ) -> None:
        """Let operation `number` (and, when sticky, all later ones) raise `OSError`.

        Nothing is done before the error, except by `sync` and `sync_dir`: a seeded part of what
        they should have written is on the disk, and the rest counts as clean. `methods` narrows
        it to operations of these names.
        """
        self._faults.append(_Fault(number, error_code, sticky, methods))
        self._alarm = min(self._alarm, number)

    @property
    def operation_count(self) -> int:
        """Operations so far."""
        return len(self._trace)

    def operations(self) -> list[Operation]:
        """The trace."""
        return [
            Operation(number, method, path, _site(method, path_class(path), code))
            for number, (method, path, code, _) in enumerate(self._trace, start=1)
        ]

    def sites(self) -> set[OperationSite]:
        """Every place of the code that did an operation."""
        return {
            _site(m, kind, code)
            for m, kind, code in {(m, path_class(p), c) for m, p, c, _ in self._trace}
        }

    def crash_points(self) -> list[int]:
        """Values for `crash_at` that differ in what a cut may leave.

        Of several with the same outcome the last is given: most has been acknowledged by then.
        """
        versions = [version for *_, version in self._trace] + [self._version]
        last = len(versions)
        return [n for n in range(1, last + 1) if n == last or versions[n] != versions[n - 1]]

    def crash_point(self) -> CrashPoint:
        """Everything that a cut at this moment may leave."""
        return CrashPoint(self.root, self._pending, self.zero_length_renames)

    def crash_states(
        self, limit: int = DEFAULT_LIMIT, rng: random.Random | None = None
    ) -> Iterator[CrashState]:
        """Disks after a cut at this moment (or, once crashed, at that of the crash)."""
        return self.crash_point().states(limit, rng)

    def reboot(self, state: CrashState | None = None) -> SimulatedDisk:
        """The machine after a power cut; without a state, after an orderly restart."""
        disk = self._successor()
        disk._boot_number += 1
        disk.root = (self.crash_point().everything() if state is None else state).build_root()
        return disk

    def kill(self) -> SimulatedDisk:
        """The machine after the process died: nothing cached is lost, same boot."""
        disk = self.copy()
        self._die()
        return disk

    def copy(self) -> SimulatedDisk:
        """What `kill` would give now, while this process continues."""
        copies: dict[Node, Node] = {}
        disk = self._successor()
        disk.root = copied(self.root, copies)
        disk._pending = [
            change._replace(
                directory=copied(change.directory, copies),
                node=copied(change.node, copies),
                sources=tuple((copied(d, copies), name) for d, name in change.sources),
            )
            for change in self._pending
        ]
        return disk

    def _successor(self) -> SimulatedDisk:
        disk = SimulatedDisk(
            clock=self.clock,
            seed=self.seed,
            space_limit=self.space_limit,
            zero_length_renames=self.zero_length_renames,
            trace_reads=self.trace_reads,
        )
        disk.reported_usage = self.reported_usage
        disk._boot_number = self._boot_number
        return disk

    def _die(self) -> None:
        """Nothing that the dead process still does can reach the disk."""
        self.crashed = True
        for node in self.mapped:
            node.cache = bytearray(node.content)
            node.map_count = 0
        self.mapped.clear()

    def operation(self, method: str, path: str, depth: int = 2) -> OSError | None:
        """Count one operation; an error means that it must fail now.

        The site is `depth` frames up: two when a public method calls this itself.
        """
        if self.crashed:
            raise SimulatedCrash
        number = len(self._trace) + 1
        if self.on_operation is not None:
            self.on_operation(number)
        if number >= self._alarm and number >= self._crash_at:
            self._die()
            raise SimulatedCrash
        self._trace.append((method, path, sys._getframe(depth).f_code, self._version))
        return self._fault(number, method, path) if number >= self._alarm else None

    def _fault(self, number: int, method: str, path: str) -> OSError | None:
        if method in _CANNOT_FAIL:
            return None
        for fault in self._faults:
            due = number >= fault.number if fault.sticky else number == fault.number
            if due and (fault.methods is None or method in fault.methods):
                return OSError(fault.error_code, os.strerror(fault.error_code), path)
        return None

    def changed(self) -> None:
        """What a cut may leave is different from now on."""
        self._version += 1

    def seeded(self) -> random.Random:
        """Chance that depends on the seed and the number of the operation only."""
        return random.Random(self.seed * 1_000_003 + len(self._trace))

    def charge(self, path: str, growth: int) -> None:
        """ENOSPC when the disk has no room for `growth` more bytes."""
        if self.space_limit is not None and growth > 0 and self._used() + growth > self.space_limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def _used(self) -> int:
        return sum(len(node.content) for _, node in walk(self.root))

    # FileSystem.

    def create(self, path: str) -> SimulatedFile:
        _raise_any(self.operation("create", path))
        directory, name = self._parent(path)
        if name in directory.entries:
            _refuse(errno.EEXIST, path)
        node = FileNode(b"", self.clock.wall_ms())
        self._add(path, directory, name, node)
        return SimulatedFile(self, path, node, writable=True)

    def open(self, path: str, *, writable: bool = True) -> SimulatedFile:
        _raise_any(self.operation("open", path))
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            _refuse(errno.EISDIR, path)
        return SimulatedFile(self, path, node, writable=writable)

    def exists(self, path: str) -> bool:
        self.read_operation("exists", path)
        try:
            self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        self.read_operation("is_dir", path)
        try:
            return isinstance(self._find(path), DirectoryNode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def list(self, path: str) -> list[str]:
        self.read_operation("list", path)
        try:
            node = self._find(path)
        except FileNotFoundError:
            return []
        if isinstance(node, FileNode):
            _refuse(errno.ENOTDIR, path)
        return sorted(node.entries)

    def make_dir(self, path: str) -> bool:
        _raise_any(self.operation("make_dir", path))
        if path == "":
            return False
        directory, name = self._parent(path)
        existing = directory.entries.get(name)
        if isinstance(existing, FileNode):
            _refuse(errno.EEXIST, path)
        if existing is None:
            self._add(path, directory, name, DirectoryNode())
        return existing is None

    def sync_dir(self, path: str) -> None:
        fault = self.operation("sync_dir", path)
        directory = self._find(path)
        if isinstance(directory, FileNode):
            _refuse(errno.ENOTDIR, path)
        rng = self.seeded() if fault is not None else None
        later: list[NameChange] = []
        for change in self._pending:
            if change.directory is not directory:
                later.append(change)
            elif rng is None or rng.random() < 0.5:
                change.apply(lambda d: d.durable)
                if change.sources:
                    # The node has arrived; its earlier places are history.
                    later = [other for other in later if other.node is not change.node]
        if len(later) != len(self._pending):
            self._pending = later
            self.changed()
        _raise_any(fault)

    def rename(self, source: str, target: str) -> None:
        _raise_any(self.operation("rename", target))
        directory, name = self._parent(target)
        old_directory, old_name = self._parent(source)
        node = self._find(source)
        existing = directory.entries.get(name)
        if existing is node:
            return
        if isinstance(node, DirectoryNode) and target.startswith(f"{source}/"):
            _refuse(errno.EINVAL, target)
        if source.startswith(f"{target}/"):
            _refuse(errno.ENOTEMPTY, target)
        if isinstance(existing, FileNode) and isinstance(node, DirectoryNode):
            _refuse(errno.ENOTDIR, target)
        if isinstance(existing, DirectoryNode):
            if isinstance(node, FileNode):
                _refuse(errno.EISDIR, target)
            if existing.entries:
                _refuse(errno.ENOTEMPTY, target)
        places = [(old_directory, old_name)]
        for change in self._pending:
            if change.node is node:
                places += [(change.directory, change.name), *change.sources]
        old_directory.split()
        directory.split()
        del old_directory.entries[old_name]
        directory.entries[name] = node
        self._pending.append(
            NameChange("rename", target, directory, name, node, tuple(dict.fromkeys(places)))
        )
        if isinstance(node, FileNode):
            node.renamed_dirty = node.renamed_dirty or node.content != node.durable
        self.changed()

    def unlink(self, path: str) -> None:
        _raise_any(self.operation("unlink", path))
        directory, name = self._parent(path)
        if isinstance(self._find(path), DirectoryNode):
            _refuse(errno.EISDIR, path)
        self._remove(path, directory, name)

    def usage(self) -> DiskUsage:
        if self.reported_usage is not None:
            return self.reported_usage
        used = self._used()
        limit = _UNLIMITED if self.space_limit is None else self.space_limit
        return DiskUsage(used, max(limit - used, 0))

    def boot_id(self) -> str:
        return f"boot-{self._boot_number}"

    def close(self) -> None:
        """Nothing is held."""

    def read_operation(self, method: str, path: str) -> None:
        """A call that changes nothing: counted on request only."""
        if self.crashed:
            raise SimulatedCrash
        if self.trace_reads:
            _raise_any(self.operation(method, path, depth=3))

    def _add(self, path: str, directory: DirectoryNode, name: str, node: Node) -> None:
        directory.split()
        directory.entries[name] = node
        self._pending.append(NameChange("add", path, directory, name, node))
        self.changed()

    def _remove(self, path: str, directory: DirectoryNode, name: str) -> None:
        directory.split()
        node = directory.entries.pop(name)
        self._pending.append(NameChange("remove", path, directory, name, node))
        self.changed()

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        components = _components(path)
        if not components:
            raise InvalidArgument(f"path {path!r}: the root itself is not a name in the store")
        if len(components[-1].encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX:
            _refuse(errno.ENAMETOOLONG, path)
        node = self._descend(components[:-1], path)
        if isinstance(node, FileNode):
            _refuse(errno.ENOTDIR, path)
        return node, components[-1]

    def _find(self, path: str) -> Node:
        return self._descend(_components(path), path)

    def _descend(self, components: tuple[str, ...], path: str) -> Node:
        node: Node = self.root
        for name in components:
            if isinstance(node, FileNode):
                _refuse(errno.ENOTDIR, path)
            child = node.entries.get(name)
            if child is None:
                _refuse(errno.ENOENT, path)
            node = child
        return node


def _refuse(error_code: int, path: str) -> NoReturn:
    raise OSError(error_code, os.strerror(error_code), path)


def _raise_any(fault: OSError | None) -> None:
    if fault is not None:
        raise fault
