"""Files, directories and name changes of the simulated disk: what is cached, what is durable.

A file has two images. `durable` is what the last completed sync left on the disk; `cache` is what
a reader sees. A sector (512 bytes) is dirty when the two differ, unless it is `lost`: a failed
sync marked it clean, so no later sync will write it. What a dirty sector held between two stores
is kept, too: the kernel may have written it back at any time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

SECTOR_SIZE = 512
# What a sector held since the last sync: the newest few, which differ the most from the old bytes.
_VERSIONS_MAX = 3
# Of a longer store only the ends can be shared with another one, unless that is as long.
_VERSIONED_SECTORS_MAX = 64


class FileNode:
    """The content of one file, independent of its names."""

    __slots__ = (
        "cache",
        "durable",
        "holes",
        "length_lost",
        "lock_owner",
        "lost",
        "map_count",
        "modified_ms",
        "renamed_dirty",
        "versions",
    )

    def __init__(self, content: bytes, modified_ms: int) -> None:
        self.durable = content
        # None: the same as `durable`. Copied at the first store, so that the thousands of disks
        # made from one crash share the bytes that none of them changes.
        self.cache: bytearray | None = None
        self.lost: set[int] = set()
        self.length_lost = False
        self.holes: tuple[tuple[int, int], ...] = ()
        self.modified_ms = modified_ms
        self.map_count = 0
        self.lock_owner: object = None
        self.renamed_dirty = False
        self.versions: dict[int, tuple[bytes, ...]] = {}

    @property
    def content(self) -> bytes | bytearray:
        """What a reader sees."""
        return self.durable if self.cache is None else self.cache

    def writable(self) -> bytearray:
        """The cache, to be changed in place."""
        if self.cache is None:
            self.cache = bytearray(self.durable)
        return self.cache

    def touched(self, start: int, end: int) -> None:
        """`[start, end)` was stored to: these sectors will be written by the next sync."""
        sectors = range(start // SECTOR_SIZE, -(-end // SECTOR_SIZE))
        if self.lost:
            self.lost.difference_update(sectors)
        if len(sectors) > _VERSIONED_SECTORS_MAX:
            self._note_version(sectors[0])
            self._note_version(sectors[-1])
        else:
            for sector in sectors:
                self._note_version(sector)

    def _note_version(self, sector: int) -> None:
        at = sector * SECTOR_SIZE
        held = bytes(self.content[at : at + SECTOR_SIZE])
        known = self.versions.get(sector, ())
        if not known or known[-1] != held:
            self.versions[sector] = (*known, held)[-_VERSIONS_MAX:]

    def middle_versions(self) -> dict[int, list[bytes]]:
        """Of each sector: contents that are neither on the disk for sure nor the newest."""
        found = {}
        for sector, versions in sorted(self.versions.items()):
            at = sector * SECTOR_SIZE
            ends = [
                bytes(image[at : at + SECTOR_SIZE]).ljust(SECTOR_SIZE, b"\0")
                for image in (self.durable, self.content)
            ]
            middle = [v for v in versions if v.ljust(SECTOR_SIZE, b"\0") not in ends]
            if middle and sector not in self.lost:
                found[sector] = middle
        return found

    def set_length(self, size: int) -> None:
        """Cut, or extend by zeros."""
        cache = self.writable()
        old_size = len(cache)
        if size < old_size:
            del cache[size:]
            self.holes = tuple((a, min(b, size)) for a, b in self.holes if a < size)
        else:
            cache.extend(bytes(size - old_size))
            self.touched(old_size, size)
        self.length_lost = False

    def fill_holes(self, start: int, end: int) -> None:
        """`[start, end)` got blocks."""
        if self.holes:
            left = [(a, min(b, start)) for a, b in self.holes]
            left += [(max(a, end), b) for a, b in self.holes]
            self.holes = tuple((a, b) for a, b in left if a < b)

    def dirty_sectors(self) -> list[int]:
        """Sectors that a power cut may leave old or new."""
        cache, durable = self.cache, self.durable
        if cache is None or cache == durable:
            return []
        new = bytes(cache)
        if len(durable) < len(new):
            durable += bytes(len(new) - len(durable))
        elif len(durable) > len(new):
            durable = durable[: len(new)]
        return [
            start // SECTOR_SIZE
            for start in range(0, len(new), SECTOR_SIZE)
            if new[start : start + SECTOR_SIZE] != durable[start : start + SECTOR_SIZE]
            and start // SECTOR_SIZE not in self.lost
        ]

    def synced(self) -> bool:
        """A sync completed; whether it changed the disk."""
        self.renamed_dirty = False
        self.versions.clear()
        cache = self.cache
        if cache is None or cache == self.durable:
            return False
        if not self.lost and not self.length_lost:
            self.durable = bytes(cache)
            return True
        before = self.durable
        length = len(before) if self.length_lost else len(cache)
        self.durable = patched(before, bytes(cache), self.dirty_sectors(), length)
        return self.durable != before

    def sync_failed(self, rng: random.Random) -> None:
        """Some dirty sectors reached the disk; all count as clean from now on."""
        self.versions.clear()
        if self.cache is None:
            return
        new = bytes(self.cache)
        dirty = self.dirty_sectors()
        length = len(self.durable)
        if not self.length_lost and rng.random() < 0.5:
            length = len(new)
        kept = [s for s in dirty if rng.random() < 0.5 and s * SECTOR_SIZE < length]
        self.durable = patched(self.durable, new, kept, length)
        self.lost.update(set(dirty).difference(kept))
        if length < len(new):
            # Bytes past the durable length are lost.
            self.lost.update(s for s in dirty if (s + 1) * SECTOR_SIZE > length)
        self.length_lost = length != len(new)

    def cache_dropped(self) -> None:
        """Clean pages come from the disk again."""
        if self.lost and self.cache is not None and self.map_count == 0:
            old = patched(self.durable, b"", (), len(self.cache))
            for sector in self.lost:
                start = sector * SECTOR_SIZE
                self.cache[start : start + SECTOR_SIZE] = old[start : start + SECTOR_SIZE]
            self.lost.clear()


def patched(old: bytes, new: bytes, sectors: Iterable[int], length: int) -> bytes:
    """`old` at `length`, with some sectors (in rising order) of `new`."""
    if length > len(old):
        old += bytes(length - len(old))
    # One copy of the file, not three: this runs for every crash state.
    old_view, new_view = memoryview(old), memoryview(new)
    pieces: list[memoryview] = []
    done = 0
    for sector in sectors:
        start = sector * SECTOR_SIZE
        end = min(start + SECTOR_SIZE, length, len(new))
        if start < end:
            pieces += (old_view[done:start], new_view[start:end])
            done = end
    pieces.append(old_view[done:length])
    return b"".join(pieces)


class DirectoryNode:
    """The names in one directory."""

    __slots__ = ("_durable", "entries")

    def __init__(self, entries: dict[str, Node] | None = None) -> None:
        self.entries: dict[str, Node] = {} if entries is None else entries
        self._durable: dict[str, Node] | None = None

    @property
    def durable(self) -> dict[str, Node]:
        """Names that survive a power cut; the same table as `entries` until a name changes."""
        return self.entries if self._durable is None else self._durable

    def split(self) -> None:
        """Called before `entries` changes."""
        if self._durable is None:
            self._durable = dict(self.entries)


Node = FileNode | DirectoryNode
Table = dict[str, Node]


class NameChange(NamedTuple):
    """A name that was added, removed or renamed and not synced with its directory yet."""

    kind: str
    path: str
    directory: DirectoryNode
    name: str
    node: Node
    # Of a rename: every place the node may still have on the disk.
    sources: tuple[tuple[DirectoryNode, str], ...] = ()

    def apply(self, table_of: Callable[[DirectoryNode], Table]) -> None:
        """Make it so in tables of durable names.

        A rename takes the node away from wherever it is: new or old, never neither, never both.
        """
        for directory, name in self.sources:
            if table_of(directory).get(name) is self.node:
                del table_of(directory)[name]
        table = table_of(self.directory)
        if self.kind != "remove":
            table[self.name] = self.node
        elif table.get(self.name) is self.node:
            del table[self.name]


AnyNode = TypeVar("AnyNode", FileNode, DirectoryNode, Node)


def copied(node: AnyNode, copies: dict[Node, Node]) -> AnyNode:
    """The same content and names, cached and durable, without maps and locks."""
    copy = copies.get(node)
    if copy is not None:
        return copy  # type: ignore[return-value]
    if isinstance(node, FileNode):
        file = copies[node] = FileNode(node.durable, node.modified_ms)
        file.cache = None if node.cache is None else bytearray(node.cache)
        file.lost = set(node.lost)
        file.length_lost = node.length_lost
        file.holes = node.holes
        file.renamed_dirty = node.renamed_dirty
        file.versions = dict(node.versions)
        return file
    directory = copies[node] = DirectoryNode()
    directory.entries = {name: copied(child, copies) for name, child in node.entries.items()}
    if node.durable is not node.entries:
        directory.split()
        directory.durable.clear()
        directory.durable.update(
            (name, copied(child, copies)) for name, child in node.durable.items()
        )
    return directory
