"""F03: the n-th operation fails, for every n, once and from there on (I13).

Every run has EIO and ENOSPC at every operation, and four more errors at the first and the last
operation of every site, which is asserted. `LONG=1` has all six at every operation.
"""

from __future__ import annotations

import errno
import time

import pytest

from tests.crash.errno_loop import ERRNOS, ErrnoJob
from tests.crash.harness import violation_report
from tests.crash.jobs import run_jobs, table_line
from tests.crash.workloads import MODES
from tests.fakes.simulated_disk import OperationSite

pytestmark = pytest.mark.crash

NIGHT_PAIRS = 100_000
# The disk is broken, or only full: what comes next differs most.
EVERYWHERE = (errno.EIO, errno.ENOSPC)


def _jobs(long_run: bool) -> list[ErrnoJob]:
    """In sync mode every operation with the two errors that differ most.

    The other errors are raised at the first and the last operation of every site, and at every
    operation by `LONG=1`. The other modes have every operation with one of the two, or the other
    one from there on.
    """
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
        ErrnoJob("sync", 0, (code,), sticky, ends_of_sites=code not in EVERYWHERE)
        for code in ERRNOS
        for sticky in (False, True)
    ]
    for mode in ("async", "pool", "sync-pool"):
        jobs.append(ErrnoJob(mode, 0, (errno.EIO,), False))
        jobs.append(ErrnoJob(mode, 0, (errno.ENOSPC,), True))
    jobs.append(ErrnoJob("sync", 1, (errno.EIO,), False, reads=True))
    return jobs


def test_every_operation_may_fail(long_run: bool, summary_lines: list[str]) -> None:
    jobs = _jobs(long_run)
    missed: set[OperationSite] = set()
    started = time.perf_counter()
    total = run_jobs(jobs, lambda tally: missed.update(tally.sites - tally.sites_hit))
    seconds = time.perf_counter() - started
    summary_lines.append(table_line("failed operations", total.states, "runs", total, seconds))
    assert not total.violation_count, violation_report(total)
    # Pairs, which only the nightly run has, are drawn by chance.
    assert long_run or not missed, "each job fails an operation of every site"
    assert total.points >= 0.95 * total.states, "most runs must reach the operation that fails"
