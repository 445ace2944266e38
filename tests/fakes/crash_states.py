"""What a power cut can leave behind: the choices at one moment, and the disks they lead to.

Each unit was made durable or was not, independently of all others:
  a name that was added, removed or renamed since its directory was synced
  the length of a file that changed since the file was synced
  each 512-byte sector that differs from the last synced content; one that was stored to several
  times may also hold what it held between two stores
  (on request) a file renamed before it was synced is empty
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tests.fakes.disk_nodes import (
    SECTOR_SIZE,
    DirectoryNode,
    FileNode,
    NameChange,
    Node,
    Table,
    patched,
)

DEFAULT_LIMIT = 512
# Enough for files with few dirty sectors, which repeat; the others would only fill the memory.
_IMAGES_KEPT_MAX = 64


class _DirtyFile:
    """The units of one file. Bits of a choice: length, emptied, then sectors, as far as present.

    Above them a bit for each middle version: a sector that reached the disk did so in that version.
    """

    def __init__(self, node: FileNode, path: str, may_be_empty: bool) -> None:
        self.node = node
        self.path = path
        self.old = node.durable
        self.new = bytes(node.content)
        versions = node.middle_versions()
        self.sectors = sorted({*node.dirty_sectors(), *versions})
        self.versions = [
            (self.sectors.index(sector), version)
            for sector, found in versions.items()
            for version in found
        ]
        self.has_length = not node.length_lost and len(self.new) != len(self.old)
        self.may_be_empty = may_be_empty and node.renamed_dirty
        self.first_sector_bit = self.has_length + self.may_be_empty
        self.width = self.first_sector_bit + len(self.sectors)
        self._images: dict[int, bytes] = {}
        visible = sum(1 for s in self.sectors if s * SECTOR_SIZE < len(self.old))
        self._bits_at_old_length = (1 << (self.first_sector_bit + visible)) - 1

    def canonical(self, choice: int, versions: int) -> int:
        """Choices that lead to the same bytes become one; with the bits of versions that count."""
        choice = self._canonical(choice)
        if not versions or (self.may_be_empty and choice >> self.has_length & 1):
            return choice
        counted: dict[int, int] = {}
        for bit, (index, _) in enumerate(self.versions):
            if versions >> bit & 1 and choice >> (self.first_sector_bit + index) & 1:
                counted[index] = bit
        return choice | sum(1 << (self.width + bit) for bit in counted.values())

    def _canonical(self, choice: int) -> int:
        if self.may_be_empty and choice >> self.has_length & 1:
            return 1 << self.has_length
        if self.has_length and not choice & 1:
            return choice & self._bits_at_old_length
        return choice

    def image(self, choice: int) -> bytes:
        """The bytes on the disk after this choice."""
        image = self._images.get(choice)
        if image is None:
            image = self._build(choice)
            if len(self._images) < _IMAGES_KEPT_MAX:
                self._images[choice] = image
        return image

    def _build(self, choice: int) -> bytes:
        if self.may_be_empty and choice >> self.has_length & 1:
            return b""
        length = len(self.new) if self.has_length and choice & 1 else len(self.old)
        bits = choice >> self.first_sector_bit
        chosen = [sector for index, sector in enumerate(self.sectors) if bits >> index & 1]
        image = patched(self.old, self.new, chosen, length)
        for bit, (index, version) in enumerate(self.versions):
            if choice >> (self.width + bit) & 1:
                start = self.sectors[index] * SECTOR_SIZE
                room = min(SECTOR_SIZE, len(image) - start)
                held = version.ljust(SECTOR_SIZE, b"\0")[: max(room, 0)]
                image = image[:start] + held + image[start + len(held) :]
        return image

    def labels(self) -> list[str]:
        length = [f"length {len(self.old)} -> {len(self.new)} of {self.path}"]
        labels = length if self.has_length else []
        labels += [f"emptied {self.path}"] if self.may_be_empty else []
        return labels + [f"sector {sector} of {self.path}" for sector in self.sectors]

    def version_labels(self) -> list[str]:
        return [
            f"a middle version of sector {self.sectors[index]} of {self.path}"
            for index, _ in self.versions
        ]


class _Names:
    """One outcome of the name units: a tree, and which dirty files are still in it."""

    __slots__ = ("files", "signature", "tables")

    def __init__(self, tables: dict[DirectoryNode, Table], files: list[int], signature: int):
        self.tables = tables
        self.files = files
        self.signature = signature


class CrashState:
    """One possible disk after the cut; `SimulatedDisk.reboot` makes a disk of it."""

    __slots__ = ("_choices", "_names", "_point", "units")

    def __init__(
        self, point: CrashPoint, names: _Names, choices: tuple[int, ...], units: int
    ) -> None:
        self._point = point
        self._names = names
        self._choices = choices
        self.units = units

    def describe(self) -> str:
        """Which units reached the disk, for the report of a failure."""
        labels = self._point.labels()
        kept = [text for index, text in enumerate(labels) if self.units >> index & 1]
        lost = [text for index, text in enumerate(labels) if not self.units >> index & 1]
        return f"units {self.units:#x}\n  on disk: {kept}\n  lost: {lost}"

    def build_root(self) -> DirectoryNode:
        """A fresh tree of this state; unchanged bytes are shared with every other state."""
        files = self._point.files
        images = {
            files[index].node: files[index].image(choice)
            for index, choice in zip(self._names.files, self._choices, strict=True)
        }
        return self._build(self._point.root, images)

    def _build(self, directory: DirectoryNode, images: dict[FileNode, bytes]) -> DirectoryNode:
        entries: Table = {}
        durable = self._point.durable
        for name, node in self._names.tables[directory].items():
            if isinstance(node, DirectoryNode):
                entries[name] = self._build(node, images)
                continue
            image = images.get(node)
            file = FileNode(durable[node] if image is None else image, node.modified_ms)
            if node.holes:
                size = len(file.durable)
                file.holes = tuple((a, min(b, size)) for a, b in node.holes if a < size)
            entries[name] = file
        return DirectoryNode(entries)


class CrashPoint:
    """The disk at one moment, independent of what happens to it later."""

    def __init__(
        self, root: DirectoryNode, pending: Sequence[NameChange], empty_renamed_files: bool
    ) -> None:
        self.root = root
        self.files: list[_DirtyFile] = []
        self.durable: dict[FileNode, bytes] = {}
        self._pending = tuple(pending)
        self._may_be_empty = empty_renamed_files
        self._tables: dict[DirectoryNode, Table] = {}
        self._visit(root, "")
        for change in self._pending:
            self._visit(change.directory, change.path.rpartition("/")[0])
            self._visit(change.node, change.path)
        self._shifts: list[int] = []
        shift = len(self._pending)
        for file in self.files:
            self._shifts.append(shift)
            shift += file.width
        self.unit_count = shift
        self._version_shifts: list[int] = []
        for file in self.files:
            self._version_shifts.append(shift)
            shift += len(file.versions)
        self.version_count = shift - self.unit_count
        self._names: dict[int, _Names] = {}
        self._signatures: dict[tuple[object, ...], int] = {}

    def _visit(self, node: Node, path: str) -> None:
        if isinstance(node, DirectoryNode):
            if node not in self._tables:
                self._tables[node] = table = dict(node.durable)
                for name, child in table.items():
                    self._visit(child, f"{path}/{name}" if path else name)
        elif node not in self.durable:
            self.durable[node] = node.durable
            dirty = _DirtyFile(node, path, self._may_be_empty)
            if dirty.width:
                self.files.append(dirty)

    def labels(self) -> list[str]:
        """One line per unit, in the order of the bits."""
        labels = [f"{change.kind} {change.path}" for change in self._pending]
        for file in self.files:
            labels += file.labels()
        for file in self.files:
            labels += file.version_labels()
        return labels

    def states(
        self, limit: int = DEFAULT_LIMIT, rng: random.Random | None = None
    ) -> Iterator[CrashState]:
        """Different states, at most `limit`: all of them when the units allow no more.

        Otherwise nothing, everything, each unit missing, each unit alone, each middle version of a
        sector, and random subsets.
        """
        seen: set[tuple[int, tuple[int, ...]]] = set()
        for units in self._subsets(limit, rng or random.Random(0)):
            names = self._names_after(units & ((1 << len(self._pending)) - 1))
            choices = tuple(
                [
                    self.files[index].canonical(
                        units >> self._shifts[index] & ((1 << self.files[index].width) - 1),
                        units >> self._version_shifts[index]
                        & ((1 << len(self.files[index].versions)) - 1),
                    )
                    for index in names.files
                ]
            )
            key = (names.signature, choices)
            if key not in seen:
                seen.add(key)
                yield CrashState(self, names, choices, units)

    def everything(self) -> CrashState:
        """The state in which every unit reached the disk (an orderly restart)."""
        return next(iter(self.states(limit=1)))

    def _subsets(self, limit: int, rng: random.Random) -> Iterator[int]:
        count = self.unit_count
        whole = (1 << count) - 1
        if limit == 1:
            yield whole
            return
        everything = count + self.version_count
        if everything < 64 and 1 << everything <= limit:
            yield from range(1 << everything)
            return
        yield 0
        yield whole
        singles = [whole ^ 1 << unit for unit in range(count)]
        singles += [1 << unit for unit in range(count)]
        singles += [whole | 1 << unit for unit in range(count, everything)]
        room = limit - 2
        if len(singles) > room * 3 // 4:
            singles = rng.sample(singles, room * 3 // 4)
        yield from singles
        names = (1 << len(self._pending)) - 1
        for turn in range(room - len(singles)):
            subset = rng.getrandbits(count)
            if turn % 3 == 1:
                subset &= rng.getrandbits(count)
            elif turn % 3 == 2:
                subset |= rng.getrandbits(count)
            if turn % 4 > 1:
                subset |= rng.getrandbits(self.version_count) << count if self.version_count else 0
            # A file without its name hides all its sectors: keep the names every other time.
            yield subset | names if turn % 2 else subset

    def _names_after(self, units: int) -> _Names:
        names = self._names.get(units)
        if names is None:
            names = self._names[units] = self._resolve(units)
        return names

    def _resolve(self, units: int) -> _Names:
        tables = self._tables
        if units:
            tables = {directory: dict(table) for directory, table in tables.items()}
            for index, change in enumerate(self._pending):
                if units >> index & 1:
                    change.apply(tables.__getitem__)
        reached: set[Node] = set()
        shape: list[object] = []
        stack: list[DirectoryNode] = [self.root]
        while stack:
            directory = stack.pop()
            for name, node in sorted(tables[directory].items(), key=lambda item: item[0]):
                shape += (name, id(node))
                reached.add(node)
                if isinstance(node, DirectoryNode):
                    stack.append(node)
            shape.append(None)
        signature = self._signatures.setdefault(tuple(shape), len(self._signatures))
        files = [index for index, file in enumerate(self.files) if file.node in reached]
        return _Names(tables, files, signature)
