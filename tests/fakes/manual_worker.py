"""A worker whose jobs run when a test says so."""

from __future__ import annotations

from collections import deque
from typing import Any

from broker_core.runtime.worker import Done, Job, SyncCall


class ManualWorker:
    """Implements `broker_core.runtime.worker.Worker`."""

    ready_to_sync = False
    syncs_natively = False
    sync_failed = False

    def submit_sync(self, call: SyncCall, done: Done, *, soon: bool = False) -> None:
        """Never called, because never ready."""
        raise NotImplementedError

    def __init__(self) -> None:
        self._jobs: deque[tuple[Job, Done]] = deque()

    @property
    def waiting(self) -> int:
        """Jobs that were submitted and have not run."""
        return len(self._jobs)

    def submit(self, job: Job, done: Done) -> None:
        """Keep the job for `run_next`."""
        self._jobs.append((job, done))

    def run(self, job: Job) -> Any:
        """Everything submitted so far, then `job`."""
        self.run_all()
        return job()

    def run_next(self) -> None:
        """One job and its report."""
        job, done = self._jobs.popleft()
        try:
            result = job()
        except OSError as error:
            done(None, error)
        else:
            done(result, None)

    def run_all(self) -> None:
        """Until nothing waits, also what the reports submit."""
        while self._jobs:
            self.run_next()

    def stop(self) -> None:
        """Finish what was submitted."""
        self.run_all()
