"""A `ThreadWorker` whose thread syncs files without the interpreter.

A Python thread must acquire the interpreter lock before and after each sync, which takes longer
than the sync itself on a fast disk. Here the thread waits and syncs in native code
(`_system_lane.c`) and notifies the loop through an eventfd.

For a single waiting producer in this process, waking the loop is half of the latency. So an
otherwise idle loop polls for the end of a sync for a bounded time instead of sleeping. Producers
behind a network are told apart by the time between the end of a sync and the next one: there a
wake-up is a few percent of the latency, and polling would double the CPU time of a message. With
`waits_at_once`, for a loop with a single peer such as a slave's, polling starts immediately instead
of in a later turn, at any distance.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from types import ModuleType
from typing import Any, Final

from broker_core.runtime.worker import Done, Job, SyncCall, ThreadWorker, Worker

AWAKE_US: Final = 600
# Syncs that begin later than this after the end of the last one are not polled for.
NEAR_US: Final = 80
# After a slow sync, this many syncs are not polled for.
REST_SYNCS: Final = 8


def _load_lanes() -> ModuleType | None:
    try:
        return importlib.import_module("broker_core.runtime._system_lane")
    except ImportError:
        return None


_lanes = _load_lanes()


def start_worker(
    name: str, loop: asyncio.AbstractEventLoop, *, waits_at_once: bool = False
) -> Worker:
    """A worker for `loop`; the native one if it is built."""
    if _lanes is None:
        return ThreadWorker(name, loop.call_soon_threadsafe)
    return LaneWorker(name, loop, _lanes, waits_at_once=waits_at_once)


class LaneWorker(ThreadWorker):
    """Owner: the thread of `loop`, but for `_next` and `_report`."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        lanes: ModuleType,
        *,
        waits_at_once: bool = False,
    ) -> None:
        self._owner_loop = loop
        self._waits_at_once = waits_at_once
        self._lane: Any = lanes.Lane()
        # In order of submission: whether it is a sync or a job, and its callback.
        self._pending: deque[tuple[bool, Done]] = deque()
        self._entries: deque[tuple[Job, Done | None] | None] = deque()
        self._polls_to_skip = 0
        loop.add_reader(self._lane.fileno(), self._notified)
        super().__init__(name, loop.call_soon_threadsafe)

    @property
    def ready_to_sync(self) -> bool:
        """Whether no job is under way; syncs run in order of submission."""
        return not self._has_ended and all(is_sync for is_sync, _ in self._pending)

    @property
    def syncs_natively(self) -> bool:
        return True

    @property
    def sync_failed(self) -> bool:
        """Whether a sync or its note has failed."""
        return bool(self._lane.failed)

    def submit_sync(self, call: SyncCall, done: Done, *, soon: bool = False) -> None:
        """Sync in native code; `done` runs on the owner's thread, possibly before this returns."""
        self._pending.append((True, done))
        idle_us = self._lane.post_sync(*call)
        if not soon or len(self._pending) > 1:
            return
        if idle_us > NEAR_US and not self._waits_at_once:
            return
        if self._polls_to_skip:
            self._polls_to_skip -= 1
        elif self._waits_at_once:
            self._poll_finished()
        else:
            # In the turn after next, so that other work comes first.
            self._owner_loop.call_soon(self._owner_loop.call_soon, self._poll_finished)

    def _poll_finished(self) -> None:
        if not self._pending:
            return
        if self._lane.wait_finished(AWAKE_US):
            self._deliver()
        else:
            self._polls_to_skip = REST_SYNCS

    def submit(self, job: Job, done: Done) -> None:
        """Queue a job; `done` is called on the owner's thread."""
        if not self._has_ended:
            self._pending.append((False, done))
        super().submit(job, done)

    def stop(self) -> None:
        """Finish what was submitted, join the thread, deliver the remaining reports."""
        super().stop()
        if not self._owner_loop.is_closed():
            self._owner_loop.remove_reader(self._lane.fileno())

    def _put(self, entry: tuple[Job, Done | None] | None) -> None:
        self._entries.append(entry)
        self._lane.post_token()

    def _next(self) -> tuple[Job, Done | None] | None:
        self._lane.wait()
        return self._entries.popleft()

    def _notified(self) -> None:
        self._lane.drain()
        self._deliver()

    def _deliver(self) -> None:
        """Deliver the reports that have arrived, in order of submission."""
        pending = self._pending
        while pending:
            if pending[0][0]:
                outcome = self._lane.take()
                if outcome is None:
                    return
                pending.popleft()[1](None, outcome or None)
            elif self._reports:
                done, result, failure = self._reports.popleft()
                pending.popleft()
                done(result, failure)
            else:
                return
