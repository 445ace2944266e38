"""Makes consume queues and index durable and records the position: the dispatch checkpoint.

The owner writes the waiting units, which is quick; the background worker syncs the files and
replaces the checkpoint. The recorded position is never above the durable log.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_core.codec.records.checkpoint_page import CheckpointPage
from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet
from broker_core.storage.derived.dispatch_checkpoint import DispatchCheckpoint, save_checkpoint
from broker_core.storage.derived.message_index import INDEX_DIR, IndexFile, MessageIndex
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.state.checkpoint import save_page


class DerivedSnapshot(NamedTuple):
    """Files to make durable, and the checkpoint that describes them."""

    files: list[str]
    directories: list[str]
    full_index_files: list[IndexFile]
    checkpoint: DispatchCheckpoint
    page: CheckpointPage


class DerivedFiles:
    """Queues, index and their checkpoint. `snapshot` on the owner, `save` on the worker."""

    def __init__(
        self,
        file_system: FileSystem,
        store_id: str,
        log: CommitLog,
        queues: ConsumeQueueSet,
        index: MessageIndex | None,
        dispatcher: LogDispatcher,
    ) -> None:
        self._file_system = file_system
        self._store_id = store_id
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        # Files and directories to sync, from snapshots whose `save` has not succeeded.
        self._unsaved: tuple[list[str], list[str]] = ([], [])
        self.saved_position = -1

    def snapshot(self) -> DerivedSnapshot:
        """Write the waiting units and describe the result. The log must be durable up to there."""
        self._queues.write_out()
        files, directories = self._queues.take_unsynced()
        if self._index is not None and self._index.take_new_names():
            directories.append(INDEX_DIR)
        files, directories = [*self._unsaved[0], *files], [*self._unsaved[1], *directories]
        self._unsaved = files, directories
        full = self._index.unsealed() if self._index is not None else []
        return DerivedSnapshot(files, directories, full, self._describe(), self._page())

    def saved(self, snapshot: DerivedSnapshot) -> None:
        """Called on the owner after `save` succeeded; until then the syncs remain due."""
        self._unsaved = [], []
        self.saved_position = snapshot.checkpoint.position

    def save(self, snapshot: DerivedSnapshot) -> None:
        """Sync the files, then the checkpoint that covers them, then Apache's page."""
        for full in snapshot.full_index_files:
            if self._index is not None:
                self._index.seal(full)
        for path in snapshot.files:
            if self._file_system.exists(path):
                file = self._file_system.open(path)
                try:
                    file.sync()
                finally:
                    file.close()
        for directory in snapshot.directories:
            if self._file_system.exists(directory):
                self._file_system.sync_dir(directory)
        save_checkpoint(self._file_system, snapshot.checkpoint)
        save_page(self._file_system, snapshot.page)

    def save_now(self) -> None:
        """Snapshot and save on the caller's thread: at open and at retention."""
        snapshot = self.snapshot()
        self.save(snapshot)
        self.saved(snapshot)

    def save_closing(self) -> None:
        """The last checkpoint of a clean stop, which also has a checksum of the open index file."""
        if self._index is not None:
            for file in self._index.files:
                if file.crc is None:
                    self._index.seal(file)
        self.save_now()

    def _describe(self) -> DispatchCheckpoint:
        return DispatchCheckpoint(
            self._store_id,
            self._dispatcher.position,
            self._log.start,
            self._dispatcher.store_timestamp,
            tuple(self._queues.entries()),
            tuple(self._index.entries()) if self._index is not None else (),
            is_indexed=self._index is not None,
        )

    def save_growing_index(self) -> None:
        """Update Apache's page before the last index file grows again."""
        if self._index is not None and self._index.files:
            save_page(self._file_system, self._page())

    def _page(self) -> CheckpointPage:
        """Times for Apache's recovery, which starts before both the queues' and the index's time.

        It deletes index files that end after the index time, so it must start at or before the
        first record of the oldest of these, or their keys would be lost.
        """
        stamp = self._dispatcher.store_timestamp
        index_stamp = 0
        files = self._index.files if self._index is not None else []
        growing = [file.header.begin_timestamp for file in files if file.crc is None]
        for file in files:
            header = file.header
            if growing and header.end_timestamp >= growing[0]:
                stamp = min(stamp, header.begin_timestamp)
                break
            index_stamp = header.end_timestamp
        return CheckpointPage(stamp, stamp, index_stamp, 0, self._dispatcher.position)
