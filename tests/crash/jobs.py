"""Runs of the crash harness as jobs: plain data in, a tally out, spread over processes."""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Protocol

from tests.crash.harness import (
    FAILURES,
    CrashEnumerator,
    EnoughViolations,
    Limits,
    Tally,
    timed,
)
from tests.crash.workloads import play, start_run, store_config
from tests.fakes.simulated_disk import SimulatedDisk

PROCESSES_MAX = 8


class Job(Protocol):
    """Something that a worker process can do."""

    def run(self) -> Tally:
        """Do it."""


@dataclasses.dataclass(frozen=True)
class CrashJob:
    """One workload, cut everywhere."""

    workload: str
    mode: str
    seed: int
    steps: int
    limits: Limits = dataclasses.field(default_factory=Limits)
    changes: tuple[tuple[str, Any], ...] = ()

    def run(self) -> Tally:
        """The tally of the whole run; a run that fails by itself is a violation as well."""
        return timed(self._run)

    def _run(self) -> Tally:
        return cut_everywhere(self)


def cut_everywhere(job: CrashJob, disk: SimulatedDisk | None = None) -> Tally:
    """The run of a job, on a disk of the caller's if given."""
    title = f"{job.workload} {job.mode} seed {job.seed} steps {job.steps}"
    changes = dict(job.changes)
    config = store_config(job.workload, job.mode, **changes)
    enumerator = CrashEnumerator(config, job.limits, job.seed, title)
    run = start_run(job.workload, job.mode, job.seed, enumerator, disk, **changes)
    try:
        play(run, job.workload, job.steps)
        enumerator.finish(run)
    except EnoughViolations:
        pass
    except FAILURES as error:
        enumerator.tally.found(title, [f"{type(error).__name__}: {error}"])
    finally:
        run.close_loop()
    return enumerator.tally


def table_line(name: str, count: int, what: str, tally: Tally, seconds: float) -> str:
    """One row of the closing table."""
    missed = len(tally.sites - tally.sites_hit)
    sites = f"{len(tally.sites):4d} sites, {missed} missed" if tally.sites_hit else ""
    return (
        f"{name:<18} {count:>9,} {what:<16} {sites:<22} "
        f"{tally.violation_count:>3} violations {seconds:7.1f} s"
    )


def run_job(job: Job) -> Tally:
    """In a worker process: quietly, since thousands of recoveries have much to say."""
    logging.disable(logging.CRITICAL)
    try:
        return job.run()
    finally:
        logging.disable(logging.NOTSET)


def run_jobs(jobs: Sequence[Job], progress: Callable[[Tally], None] | None = None) -> Tally:
    """All jobs, two or more at a time."""
    total = Tally()
    for tally in _results(jobs):
        total.add(tally)
        if progress is not None:
            progress(tally)
    return total


def _results(jobs: Sequence[Job]) -> Iterable[Tally]:
    processes = min(multiprocessing.cpu_count(), PROCESSES_MAX, len(jobs))
    if processes < 2:
        yield from map(run_job, jobs)
        return
    # Not forked: a test process has threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from pool.map(run_job, jobs)
