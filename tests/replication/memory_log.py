"""A log in memory, for sessions without a store."""

from __future__ import annotations

import zlib
from collections.abc import Callable


class MemoryLog:
    """Implements `ReplicatedLog`; everything is safe at once unless `safe_limit` says less."""

    def __init__(
        self, data: bytes = b"", start: int = 0, file_size: int = 1000, store_id: str = "m"
    ) -> None:
        self.start = start
        self.data = bytearray(data)
        self.file_size = file_size
        self.store_id = store_id
        self.safe_limit: int | None = None
        self.is_settled = True

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    @property
    def safe_end(self) -> int:
        return self.end if self.safe_limit is None else min(self.end, self.safe_limit)

    def read(self, position: int, size: int) -> bytes:
        size = min(size, self.file_size - position % self.file_size)
        at = position - self.start
        return bytes(self.data[at : at + size]) if at >= 0 else b""

    def read_later(
        self, position: int, size: int
    ) -> tuple[Callable[[], bytes], Callable[[], object]] | None:
        return lambda: self.read(position, size), lambda: None

    def checksum(self, start: int, end: int) -> int:
        return zlib.crc32(self.data[start - self.start : end - self.start])

    def begin_at(self, position: int) -> None:
        assert not self.data
        self.start = position

    def settle(self) -> None:
        """Safe at once."""

    def append(self, data: bytes | memoryview) -> None:
        self.data += data
