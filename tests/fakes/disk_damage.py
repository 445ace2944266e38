"""What happens to a disk at rest, and how a test looks at one.

Damage goes to the cached and the durable image alike, as if it had been there since the last boot.
None of this is an operation: nothing is counted and nothing fails.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker_core.storage.files.store_paths import path_components
from tests.fakes.disk_nodes import DirectoryNode, FileNode, Node

PAGE_SIZE = 4096


class DamageableDisk:
    """Mixed into `SimulatedDisk`, which has the root."""

    root: DirectoryNode

    def files(self) -> list[str]:
        """Every file, sorted."""
        return [path for path, _ in walk(self.root)]

    def content(self, path: str) -> bytes:
        """What a reader sees."""
        return bytes(self.file_node(path).content)

    def durable_content(self, path: str) -> bytes:
        """What the last completed sync left (the name may still be undurable)."""
        return self.file_node(path).durable

    def tree(self) -> dict[str, bytes]:
        """Every file and its bytes, to compare two disks."""
        return {path: bytes(node.content) for path, node in walk(self.root)}

    def put(self, path: str, content: bytes, modified_ms: int = 0) -> None:
        """Plant or replace a durable file, with the directories above it."""
        directory = self.root
        *parents, name = path_components(path)
        for parent in parents:
            child = directory.durable.get(parent)
            if child is None:
                child = DirectoryNode()
                directory.entries[parent] = directory.durable[parent] = child
            assert isinstance(child, DirectoryNode), f"{parent} of {path} is a file"
            directory = child
        node = FileNode(content, modified_ms)
        directory.entries[name] = directory.durable[name] = node

    def flip(self, path: str, bit: int) -> None:
        """Turn one bit; bit 0 is the lowest of the first byte."""
        image = bytearray(self.content(path))
        image[bit >> 3] ^= 1 << (bit & 7)
        self.overwrite(path, bytes(image))

    def truncate(self, path: str, size: int) -> None:
        """Cut the file, or extend it by zeros."""
        self.overwrite(path, self.content(path)[:size].ljust(size, b"\0"))

    def delete(self, path: str) -> None:
        """Remove the name (of a directory: with all below)."""
        *parents, name = path_components(path)
        directory = self.node_at(tuple(parents))
        assert isinstance(directory, DirectoryNode), f"{path} has no parent"
        directory.entries.pop(name)
        directory.durable.pop(name, None)

    def swap_pages(
        self, path: str, page: int, other_path: str, other_page: int, size: int = PAGE_SIZE
    ) -> None:
        """Two pages in each other's place: a pair of misdirected writes."""
        here, there = self._page(path, page, size), self._page(other_path, other_page, size)
        self._set_page(path, page * size, there)
        self._set_page(other_path, other_page * size, here)

    def copy_page(
        self, path: str, page: int, to_path: str, to_page: int, size: int = PAGE_SIZE
    ) -> None:
        """A duplicated or stale write: the page appears in a second place as well."""
        self._set_page(to_path, to_page * size, self._page(path, page, size))

    def overwrite(self, path: str, content: bytes) -> None:
        """Other bytes in the same file; it must not be mapped."""
        node = self.file_node(path)
        assert node.map_count == 0, f"{path} is mapped"
        node.durable = content
        node.cache = None
        node.lost.clear()
        node.length_lost = False
        node.holes = ()

    def file_node(self, path: str) -> FileNode:
        """The file behind a name."""
        node = self.node_at(path_components(path))
        assert isinstance(node, FileNode), f"{path} is no file"
        return node

    def node_at(self, components: tuple[str, ...]) -> Node | None:
        """What a name leads to."""
        node: Node | None = self.root
        for name in components:
            node = node.entries.get(name) if isinstance(node, DirectoryNode) else None
        return node

    def _page(self, path: str, page: int, size: int) -> bytes:
        content = self.content(path)[page * size : (page + 1) * size]
        assert content, f"{path} has no page {page}"
        return content

    def _set_page(self, path: str, start: int, page: bytes) -> None:
        content = self.content(path)
        # The last page of a file may be short; the length of the file stays.
        page = page[: len(content) - start]
        self.overwrite(path, content[:start] + page + content[start + len(page) :])


def walk(directory: DirectoryNode, path: str = "") -> Iterator[tuple[str, FileNode]]:
    """(path, file) of every file below, sorted."""
    for name in sorted(directory.entries):
        node = directory.entries[name]
        child_path = f"{path}/{name}" if path else name
        if isinstance(node, DirectoryNode):
            yield from walk(node, child_path)
        else:
            yield child_path, node
