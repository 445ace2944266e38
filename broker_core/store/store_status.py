"""Status of a store: identity, positions, counters. Also works on a closed store."""

from __future__ import annotations

from typing import Any

from broker_core.flush.flush_service import FlushService
from broker_core.storage.files.file_system import DiskUsage, FileSystem
from broker_core.storage.staging.staging_area import StagingArea
from broker_core.store.disk_errors import names_disk_errors
from broker_core.store.opening.opening import OpenedStore, RecoveryReport
from broker_core.store.running_flags import RunningFlags
from broker_core.store.store_stats import StoreStats
from broker_core.store.writes.appender import Appender


class StoreStatus:
    """`MessageStore.state`. Owner thread only."""

    def __init__(
        self,
        file_system: FileSystem,
        opened: OpenedStore,
        flush: FlushService,
        writes: Appender,
        staging: StagingArea,
        flags: RunningFlags,
        stats: StoreStats,
    ) -> None:
        self._file_system = file_system
        self._opened = opened
        self._log = opened.log
        self._flush = flush
        self._writes = writes
        self._staging = staging
        self._flags = flags
        self._stats = stats

    @property
    def boot_id(self) -> str:
        """Boot id of the machine."""
        return self._flush.state.boot_id

    @property
    def store_id(self) -> str:
        """Identity of this log."""
        return self._flush.state.store_id

    @property
    def epoch(self) -> int:
        """Changes when messages that readers may have seen could be lost."""
        return self._flush.state.epoch

    @property
    def store_host(self) -> bytes:
        """Address and port that records carry."""
        return self._writes.store_host

    @property
    def is_async(self) -> bool:
        """Whether a put is acknowledged at once, before it is durable and copied."""
        return self._writes.acks.puts_at_once

    @property
    def recovery(self) -> RecoveryReport:
        """What opening found and did."""
        return self._opened.report

    @property
    def log_range(self) -> tuple[int, int]:
        """First and end position of the log."""
        return self._log.start, self._log.position

    @property
    def flushed_position(self) -> int:
        """Everything below is durable."""
        return self._flush.flushed.position

    @property
    def dispatched_position(self) -> int:
        """Everything below is visible to readers."""
        return self._opened.dispatcher.position

    @property
    def fenced(self) -> bool:
        """Whether a sync failed; then nothing is acknowledged any more."""
        return self._flush.failure is not None

    @names_disk_errors
    def disk_usage(self) -> DiskUsage:
        """Space on the partition of the store."""
        self._flags.require_open()
        return self._file_system.usage()

    def stats(self) -> dict[str, Any]:
        """Counters since the store was opened, and positions."""
        return {
            **self._stats.snapshot(),
            "log_start": self._log.start,
            "log_end": self._log.position,
            "committed_position": self._flush.committed_position,
            "flushed_position": self._flush.flushed.position,
            "dispatched_position": self._opened.dispatcher.position,
            "queues": len(self._opened.queues),
            "staging_bytes": self._staging.size,
            "running_flags": self._flags.bits,
            "write_buffers_free": self._log.segments.free_buffers,
        }
