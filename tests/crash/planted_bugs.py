"""Stores with a bug planted, each a context in which the harness must find violations.

A bug is planted in the disk that a store is given, in its configuration, or by exchanging one
function of ours for a wrong one. Reopened stores always get an honest disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from broker_core.flush.flush_service import FlushJob, FlushService
from broker_core.storage.files import json_table
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.log.segment_file import Segment
from broker_core.storage.state import recovery, store_state
from broker_core.store.opening import derived_files, verdict
from broker_core.store.opening.derived_files import DerivedFiles, DerivedSnapshot
from broker_core.store.scheduler import StoreScheduler
from broker_core.store.visibility import Visibility
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk
from tests.fakes.simulated_file import SimulatedFile


class LyingFile(SimulatedFile):
    """Answers a sync of the log before it is done."""

    __slots__ = ()

    def sync(self) -> None:
        if self.path.startswith("commitlog/"):
            self._disk.operation("sync", self.path)
        else:
            super().sync()


class LyingDisk(SimulatedDisk):
    """Acknowledge before sync."""

    def create(self, path: str) -> SimulatedFile:
        return self._lying(super().create(path))

    def open(self, path: str, *, writable: bool = True) -> SimulatedFile:
        return self._lying(super().open(path, writable=writable), writable)

    def _lying(self, file: SimulatedFile, writable: bool = True) -> SimulatedFile:
        return LyingFile(self, file.path, file._node, writable)


class ForgetfulDisk(SimulatedDisk):
    """New names are never synced with their directory."""

    def sync_dir(self, path: str) -> None:
        self.operation("sync_dir", path)


def new_disk(kind: type[SimulatedDisk]) -> SimulatedDisk:
    """A planted disk with a clock of its own."""
    return kind(clock=ManualClock(), seed=1)


@contextlib.contextmanager
def retry_after_error(between: Callable[[], None] | None = None) -> Iterator[None]:
    """A failed sync is tried again, and the second answer believed; `between` heals the disk."""
    original = FlushService._perform

    def retrying(self: FlushService, job: FlushJob) -> None:
        try:
            original(self, job)
        except OSError:
            if between is not None:
                between()
            self._broken = False
            original(self, job)

    with mock.patch.object(FlushService, "_perform", retrying):
        yield


@contextlib.contextmanager
def cut_below_watermark() -> Iterator[None]:
    """Every invalid record is taken for a torn tail."""
    original = store_state.decode_slot

    def without_watermark(slot: bytes) -> Any:
        found = original(slot)
        if found is None:
            return None
        return found[0], found[1]._replace(durable_position=0)

    with (
        mock.patch.object(store_state, "decode_slot", without_watermark),
        mock.patch.object(verdict, "load_checkpoint", lambda _: None),
    ):
        yield


@contextlib.contextmanager
def table_in_place() -> Iterator[None]:
    """A table is overwritten instead of replaced."""

    def overwrite(file_system: FileSystem, path: str, data: bytes) -> None:
        if not file_system.exists(path):
            file_system.create(path).close()
            file_system.sync_dir(path.rpartition("/")[0])
        file = file_system.open(path)
        file.write(0, data)
        file.resize(len(data))
        file.sync()
        file.close()

    with mock.patch.object(json_table, "replace_file_keeping_backup", overwrite):
        yield


@contextlib.contextmanager
def incomplete_groups_count() -> Iterator[None]:
    """Recovery keeps the valid part of an incomplete group."""
    with mock.patch.object(recovery, "group_header_at", lambda *_: None):
        yield


@contextlib.contextmanager
def stale_bytes_stay() -> Iterator[None]:
    """The log is cut in memory only; what was behind the cut stays in the file."""

    def only_in_memory(file_system: FileSystem, segment: Segment, start: int, path: str) -> Segment:
        segment.retire()
        return Segment(file_system.open(path), segment.base, segment.size, wrote=start)

    with mock.patch.object(recovery, "_zero_from", only_in_memory):
        yield


@contextlib.contextmanager
def visible_before_durable() -> Iterator[None]:
    """Readers get what is appended, synced or not."""

    def shown_at_once(self: StoreScheduler, *, is_rows: bool = False) -> None:
        self._upkeep.dispatch()
        if self._flush.note_appended():
            self._flush.pump()

    with (
        mock.patch.object(StoreScheduler, "appended", shown_at_once),
        mock.patch.object(Visibility, "limit", lambda self: self._flush._log.position),
    ):
        yield


@contextlib.contextmanager
def checkpoint_before_queues() -> Iterator[None]:
    """The dispatch checkpoint vouches for queue files that are not synced yet."""
    original = DerivedFiles.save

    def too_early(self: DerivedFiles, snapshot: DerivedSnapshot) -> None:
        derived_files.save_checkpoint(self._file_system, snapshot.checkpoint)
        original(self, snapshot)

    with mock.patch.object(DerivedFiles, "save", too_early):
        yield


Plant = Callable[[], contextlib.AbstractContextManager[None]]
