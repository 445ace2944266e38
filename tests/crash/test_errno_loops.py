"""F03: the n-th operation fails, for every n, with six errors, once and from there on (I13)."""

from __future__ import annotations

import errno
import time

import pytest

from tests.crash.errno_loop import ERRNOS, ErrnoJob
from tests.crash.harness import violation_report
from tests.crash.jobs import run_jobs, table_line
from tests.crash.workloads import MODES

pytestmark = pytest.mark.crash

NIGHT_PAIRS = 100_000
# Of the operations of a script, so that several processes have some.
SHARES = 4


def _jobs(long_run: bool) -> list[ErrnoJob]:
    """Every operation with every error in sync mode, the two that differ most in the others."""
    if long_run:
        jobs = [
            ErrnoJob(mode, seed, (code,), sticky, reads=reads)
            for mode in MODES
            for seed in range(2)
            for code in ERRNOS
            for sticky in (False, True)
            for reads in (False, True)
        ]
        share = NIGHT_PAIRS // (len(MODES) * len(ERRNOS))
        return jobs + [
            ErrnoJob(mode, 9, (code,), False, pairs=share) for mode in MODES for code in ERRNOS
        ]
    jobs = [
        ErrnoJob("sync", 0, ERRNOS, sticky, share=(number, SHARES))
        for sticky in (False, True)
        for number in range(SHARES)
    ]
    for mode in ("async", "pool", "sync-pool"):
        jobs.append(ErrnoJob(mode, 0, (errno.EIO,), False))
        jobs.append(ErrnoJob(mode, 0, (errno.ENOSPC,), True))
    jobs.append(ErrnoJob("sync", 1, (errno.EIO,), False, reads=True))
    return jobs


def test_every_operation_may_fail(long_run: bool, summary_lines: list[str]) -> None:
    jobs = _jobs(long_run)
    started = time.perf_counter()
    total = run_jobs(jobs)
    seconds = time.perf_counter() - started
    summary_lines.append(table_line("failed operations", total.states, "runs", total, seconds))
    summary_lines.append(table_line("on known disks", total.known, "states", total, seconds))
    assert not total.violation_count, violation_report(total)
    assert total.points >= 0.95 * total.states, "most runs must reach the operation that fails"
