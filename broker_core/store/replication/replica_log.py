"""The log of a store as replication sees it: raw bytes by position.

A master's log is read, a slave's log is appended to. Owner thread only. Appended bytes are flushed
and dispatched as those of any other append.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.errors import DiskFailed, ReplicationRefused, StoreFenced
from broker_core.flush.flush_service import FlushService
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet
from broker_core.storage.log.commit_log import CommitLog
from broker_core.store.disk_errors import names_disk_errors
from broker_core.store.scheduler import StoreScheduler

_CHECK_SIZE = 1 << 20


class ReplicaLog:
    """Implements `replication.replicated_log.ReplicatedLog`."""

    def __init__(
        self,
        store_id: str,
        log: CommitLog,
        flush: FlushService,
        dispatcher: LogDispatcher,
        scheduler: StoreScheduler,
        *,
        is_async: bool,
    ) -> None:
        self.store_id = store_id
        self._log = log
        self._flush = flush
        self._dispatcher = dispatcher
        self._scheduler = scheduler
        self._is_async = is_async
        self.listeners = scheduler.log_listeners
        """Called after an append and after progress of the disk."""

    @property
    def file_size(self) -> int:
        """Bytes of one log file."""
        return self._log.segments.size

    @property
    def start(self) -> int:
        """The first position that retention has not removed."""
        return self._log.start

    @property
    def end(self) -> int:
        """End of the readable bytes; with a pool of write buffers, of the bytes in the files."""
        return self._flush.committed_position

    @property
    def safe_end(self) -> int:
        """Durable with SYNC_FLUSH, else appended."""
        return self._flush.committed_position if self._is_async else self._flush.flushed.position

    @property
    def is_settled(self) -> bool:
        """Whether `safe_end` is the end of the log."""
        return self.safe_end == self._log.position

    @names_disk_errors
    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`, of one file; empty at the end."""
        segment = self._log.segments.find(position)
        if segment is None:
            return b""
        offset = position - segment.base
        until = min(offset + size, segment.committed)
        return segment.file.read(offset, until - offset) if until > offset else b""

    def read_later(
        self, position: int, size: int
    ) -> tuple[Callable[[], bytes], Callable[[], object]] | None:
        """`read` for another thread, and the call that the owner makes when it is done.

        The file stays open until then, even if retention removes it.
        """
        segment = self._log.segments.find(position)
        if segment is None:
            return None
        offset = position - segment.base
        count = min(size, segment.committed - offset)
        if count <= 0:
            return None
        segment.hold()

        @names_disk_errors
        def run() -> bytes:
            return segment.file.read(offset, count)

        return run, segment.leave

    def checksum(self, start: int, end: int) -> int:
        """CRC-32 of `[start, end)`."""
        checksum = 0
        while start < end and (data := self.read(start, min(_CHECK_SIZE, end - start))):
            checksum = zlib.crc32(data, checksum)
            start += len(data)
        return checksum

    def begin_at(self, position: int) -> None:
        """Let an empty log begin at `position`."""
        size = self.file_size
        if position % size:
            raise ReplicationRefused(
                "file size",
                f"the master's log has a file that starts at {position}, which is no multiple of "
                f"mappedFileSizeCommitLog={size} here; give both brokers the same value",
            )
        if self._log.segments.all:
            raise ReplicationRefused(
                "behind",
                f"the master's log starts at {position}, after the end of this one; empty this "
                "store's directory to copy the log again",
            )
        self._log.begin_at(position)
        self._flush.begin_at(position)
        self._dispatcher.position = position

    def append(self, data: bytes | memoryview) -> None:
        """Append bytes of the master's log. Raises if that fails or earlier bytes are damaged."""
        if self._scheduler.log_problem is not None:
            # Bytes copied before are damaged: reject further ones.
            raise self._scheduler.log_problem
        if self._flush.failure is not None:
            raise StoreFenced(str(self._flush.failure))
        view = memoryview(data)
        try:
            self._log.append_copy(view)
        except OSError as error:
            self._flush.fence(error)
            raise DiskFailed(f"the log cannot be written: {error}") from error
        self._scheduler.appended()

    def settle(self) -> None:
        """Start to flush the appended bytes."""
        self._flush.pump()


def next_offsets_at(queues: ConsumeQueueSet, position: int) -> list[tuple[bytes, int, int]]:
    """(topic, queue id, offset of the first entry whose record is at `position` or after it)."""
    firsts = ((queue.key, queue.first_kept(position)) for queue in queues)
    return [(*key, first) for key, first in firsts if first > 0]
