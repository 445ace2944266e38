"""Interface of a log for replication; implemented by the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

# A read for any thread, and a function that the owner calls afterwards, even if the read failed.
LaterRead = tuple[Callable[[], bytes], Callable[[], object]]


class ReplicatedLog(Protocol):
    """Bytes by position. One owner thread."""

    @property
    def store_id(self) -> str:
        """Identity of the directory."""

    @property
    def file_size(self) -> int:
        """Bytes of one log file; bodies never cross its end."""

    @property
    def start(self) -> int:
        """The first position that retention has not removed."""

    @property
    def end(self) -> int:
        """End of the readable bytes."""

    @property
    def safe_end(self) -> int:
        """End of the acknowledged bytes: durable with SYNC_FLUSH, else appended."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, of one file; empty at the end."""

    def read_later(self, position: int, size: int) -> LaterRead | None:
        """`read` for another thread; None where nothing can be read."""

    def checksum(self, start: int, end: int) -> int:
        """CRC-32 of `[start, end)`."""

    def begin_at(self, position: int) -> None:
        """Let an empty log begin at `position`, a multiple of the file size."""

    def settle(self) -> None:
        """Start to flush the appended bytes; does not wait."""

    def append(self, data: bytes | memoryview) -> None:
        """Store bytes of the master's log at `end`."""
