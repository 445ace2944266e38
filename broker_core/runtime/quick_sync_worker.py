"""A `LaneWorker` that syncs on the caller's thread while syncs are quick.

For a store that only one peer writes to and whose next step is to answer that peer, as a slave's:
handing the sync to a thread and waking up again takes as long as a sync of a good disk. A sync that
takes longer than a long turn of the loop does sends the following ones to the thread for a while,
so slow ones hold up readers for no more than a twentieth of the time. A good disk has one of some
milliseconds now and then; it takes longer than that before one counts as slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Final, NamedTuple

from broker_core.runtime.clock import Clock
from broker_core.runtime.lane_worker import LaneWorker, native_lanes
from broker_core.runtime.lane_worker import start_worker as start_lane_worker
from broker_core.runtime.worker import Done, SyncCall, Worker

QUICK_S: Final = 0.003
# After a slow sync the thread syncs for so many times as long as that one took.
REST_FACTOR: Final = 20


class QuickCalls(NamedTuple):
    """What it takes to sync here: the time, and two calls of the file system on descriptors."""

    clock: Clock
    sync: Callable[[int], None]
    write: Callable[[int, int, bytes], None]
    """(descriptor, position, bytes)."""


class QuickSyncWorker(LaneWorker):
    """`done` is called before `submit_sync` returns, or later as with every other worker."""

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, lanes: ModuleType, calls: QuickCalls
    ) -> None:
        super().__init__(name, loop, lanes)
        self._clock = calls.clock
        self._calls = calls
        self._rests_until = 0.0
        self._has_failed = False
        self._sync_count = 0

    @property
    def sync_failed(self) -> bool:
        """Whether a sync or its note has failed, here or on the thread."""
        return self._has_failed or super().sync_failed

    def submit_sync(self, call: SyncCall, done: Done, *, soon: bool = False) -> None:
        """Sync now, unless something is under way or the disk is slow."""
        self._sync_count = number = self._sync_count + 1
        started = self._clock.monotonic()
        if self._pending or started < self._rests_until:
            super().submit_sync(call, done)
            return
        descriptors, note_descriptor, note_at, note = call
        if self.sync_failed:
            done(None, OSError("an earlier write or sync failed"))
            return
        try:
            for descriptor in descriptors:
                self._calls.sync(descriptor)
        except OSError as error:
            # Never repeated: a second call may say that all is well.
            self._has_failed = True
            done(None, error)
            return
        ended = self._clock.monotonic()
        if ended - started > QUICK_S:
            self._rests_until = ended + REST_FACTOR * (ended - started)
        try:
            done(None, None)
        finally:
            # The peer waits for what `done` says, nobody for the note. A sync that `done` began
            # has a later one.
            if number == self._sync_count:
                self._write_note(note_descriptor, note_at, note)

    def _write_note(self, descriptor: int, position: int, note: bytes) -> None:
        """The sync was fine; a note that fails is known to whoever comes after."""
        try:
            if descriptor >= 0:
                self._calls.write(descriptor, position, note)
        except OSError:
            self._has_failed = True


def start_worker(
    name: str, loop: asyncio.AbstractEventLoop, calls: QuickCalls | None = None
) -> Worker:
    """A worker for `loop`, the fastest that is built; with `calls`, one that syncs itself."""
    lanes = native_lanes()
    if calls is None or lanes is None:
        return start_lane_worker(name, loop)
    return QuickSyncWorker(name, loop, lanes, calls)
