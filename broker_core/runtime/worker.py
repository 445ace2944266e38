"""Runs blocking jobs in order and reports each result back to the owner.

`ThreadWorker` is one thread; results go through `post`, which hands a call to the owner's thread
(`loop.call_soon_threadsafe`). `InlineWorker` runs a job where it is submitted, for simulations and
for a store that is used without an event loop.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

Job = Callable[[], Any]
# Descriptors to sync; then descriptor, position and bytes of a note to write after that.
SyncCall = tuple[tuple[int, ...], int, int, bytes]
Done = Callable[[Any, BaseException | None], None]
Post = Callable[..., Any]


class Worker(Protocol):
    """Runs jobs one after another."""

    @property
    def ready_to_sync(self) -> bool:
        """Whether `submit_sync` is available and no job is under way."""

    @property
    def syncs_natively(self) -> bool:
        """Whether `submit_sync` runs without Python; jobs and syncs keep their order."""

    @property
    def sync_failed(self) -> bool:
        """Whether a submitted sync or its note has failed, even if not reported yet."""

    def submit_sync(self, call: SyncCall, done: Done, *, soon: bool = False) -> None:
        """Sync in native code; `done` is called before the note is written.

        `soon`: few producers wait, so the owner may poll for the end.
        """

    def submit(self, job: Job, done: Done) -> None:
        """Run `job` later; then `done(result, None)` or `done(None, error)` on the owner."""

    def run(self, job: Job) -> Any:
        """Run `job` after all submitted ones and wait for its result."""

    def stop(self) -> None:
        """Finish what was submitted, then end."""


class _JobsOnly:
    """Base of workers that cannot sync in native code."""

    @property
    def ready_to_sync(self) -> bool:
        return False

    @property
    def syncs_natively(self) -> bool:
        return False

    @property
    def sync_failed(self) -> bool:
        """Jobs report their own failures."""
        return False

    def submit_sync(self, call: SyncCall, done: Done, *, soon: bool = False) -> None:
        """Not called, since `ready_to_sync` is False."""
        raise NotImplementedError


class InlineWorker(_JobsOnly):
    """Runs every job at once, on the caller's thread."""

    def submit(self, job: Job, done: Done) -> None:
        try:
            result = job()
        except OSError as error:
            done(None, error)
        else:
            done(result, None)

    def run(self, job: Job) -> Any:
        return job()

    def stop(self) -> None:
        """Does nothing: every job has run when `submit` returns."""


class ThreadWorker(_JobsOnly):
    """One daemon thread; jobs and reports keep the order of submission."""

    def __init__(self, name: str, post: Post) -> None:
        self._post = post
        self._reports: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._jobs: queue.SimpleQueue[tuple[Job, Done | None] | None] = queue.SimpleQueue()
        # The thread has ended: jobs that its last reports submit run where they are submitted.
        self._has_ended = False
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job, done: Done) -> None:
        """Queue a job; `done` is called on the owner's thread."""
        if self._has_ended:
            self._carry_out(job, done, lambda done, result, error: done(result, error))
        else:
            self._put((job, done))

    def run(self, job: Job) -> Any:
        """Queue a job and block until it is done. Not for the hot path."""
        if self._has_ended:
            return job()
        answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def guarded() -> None:
            try:
                answer.put((job(), None))
            except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
                answer.put((None, error))

        self._put((guarded, None))
        result, failure = answer.get()
        if failure is not None:
            raise failure
        return result

    def stop(self) -> None:
        """Finish queued jobs, join the thread, and deliver the remaining reports."""
        if not self._has_ended:
            self._put(None)
            self._thread.join()
            self._has_ended = True
        self._deliver()

    def _put(self, entry: tuple[Job, Done | None] | None) -> None:
        self._jobs.put(entry)

    def _next(self) -> tuple[Job, Done | None] | None:
        """On the worker's thread: wait for an entry."""
        return self._jobs.get()

    def _deliver(self) -> None:
        """On the owner's thread."""
        while self._reports:
            done, result, error = self._reports.popleft()
            done(result, error)

    def _report(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._reports.append((done, result, error))
        try:
            self._post(self._deliver)
        except RuntimeError:
            # The owner's loop has ended; `stop` delivers.
            return

    def _loop(self) -> None:
        while (entry := self._next()) is not None:
            job, done = entry
            if done is None:
                job()
            else:
                self._carry_out(job, done, self._report)

    @staticmethod
    def _carry_out(
        job: Job, done: Done, report: Callable[[Done, Any, BaseException | None], None]
    ) -> None:
        try:
            result = job()
        except BaseException as error:  # noqa: BLE001 - reported to the owner; a thread must not die silently
            report(done, None, error)
        else:
            report(done, result, None)


class WorkerSlot:
    """A worker that can be exchanged: inline while a store opens, a thread while it serves."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._sync_failed = False

    def exchange(self, worker: Worker) -> None:
        """Finish what the current worker has, then use `worker`."""
        try:
            self._worker.stop()
        finally:
            self._sync_failed = self.sync_failed
            self._worker = worker

    @property
    def ready_to_sync(self) -> bool:
        return self._worker.ready_to_sync

    @property
    def syncs_natively(self) -> bool:
        return self._worker.syncs_natively

    @property
    def sync_failed(self) -> bool:
        return self._sync_failed or self._worker.sync_failed

    def submit_sync(self, call: SyncCall, done: Done, *, soon: bool = False) -> None:
        self._worker.submit_sync(call, done, soon=soon)

    def submit(self, job: Job, done: Done) -> None:
        self._worker.submit(job, done)

    def run(self, job: Job) -> Any:
        return self._worker.run(job)

    def stop(self) -> None:
        self._worker.stop()
