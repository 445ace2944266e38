"""A commit log with its flush service on a simulated disk, and nothing else of a store."""

from __future__ import annotations

from array import array
from typing import Any

from broker_core.config import StoreConfig
from broker_core.flush.flush_service import FlushService
from broker_core.runtime.worker import InlineWorker, Worker
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR, SegmentSequence
from broker_core.storage.log.write_buffer_pool import WriteBufferPool
from broker_core.storage.state.store_state import StoreState, StoreStateFile, decode_slot, new_state
from tests.codec.codec_backends import batch_of
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

FILE_SIZE = 4096


class FlushedLog:
    """Appends go to `service`, whose jobs `worker` runs."""

    def __init__(
        self, worker: Worker | None = None, disk: SimulatedDisk | None = None, **settings: Any
    ) -> None:
        self.disk = new_disk() if disk is None else disk
        self.config = StoreConfig(commit_log_file_size=FILE_SIZE, **settings)
        self.disk.make_dir(COMMIT_LOG_DIR)
        pool = None
        if self.config.transient_pool_enable:
            pool = WriteBufferPool(self.config.transient_pool_size, FILE_SIZE)
        self.pool = pool
        segments = SegmentSequence(
            self.disk,
            FILE_SIZE,
            [],
            0,
            InlineWorker(),
            pool=pool,
            pool_fail_fast=self.config.transient_pool_fail_fast,
        )
        self.log = CommitLog(segments, 0)
        state = StoreStateFile.create(self.disk, new_state(0, self.disk.boot_id()))
        self.service = FlushService(
            self.log, state, self.config, self.disk.clock, worker or InlineWorker()
        )
        self._next = array("q", [0])

    def append(self, size: int = 200) -> int:
        """One record of `size` bytes; returns the end of the log."""
        batch = batch_of(bytes(size - 91 - 9 - 20))
        self.log.reserve(size, size, 1)
        _, end = self.log.append(batch, memoryview(self._next), 0, size)
        if self.service.note_appended():
            self.service.pump()
        return end

    def log_syncs(self) -> int:
        """How often a log file was synced; a new file is synced once before its use."""
        operations = self.disk.operations()
        syncs = [op for op in operations if op.method == "sync" and op.path.startswith("commitlog")]
        created = {op.path for op in operations if op.path.startswith("commitlog/")}
        return len(syncs) - len(created)

    def state_on_disk(self, *, durable: bool = False) -> StoreState:
        """The newest slot of the file, as a kill or a power cut would leave it."""
        read = self.disk.durable_content if durable else self.disk.content
        data = read("store_state")
        slots = [decode_slot(data[:512]), decode_slot(data[512:])]
        return max((slot for slot in slots if slot), key=lambda slot: slot[0])[1]
