"""F02: a second crash, before every operation of the recovery from a first one (I17)."""

from __future__ import annotations

import time

import pytest

from tests.crash.harness import Limits, violation_report
from tests.crash.jobs import CrashJob, run_jobs, table_line
from tests.crash.workloads import MODES, WORKLOADS

pytestmark = pytest.mark.crash

CI = Limits(
    states_per_point=2,
    recovery_states_per_point=4,
    recovery_hits_per_site=1,
    again_every=1_000_000,
)
NIGHT = Limits(
    states_per_point=16,
    recovery_states_per_point=32,
    recovery_hits_per_site=12,
    again_every=1_000_000,
)


def test_a_crash_inside_recovery_changes_nothing(long_run: bool, summary_lines: list[str]) -> None:
    limits, seeds, least = (NIGHT, range(100, 108), 500_000) if long_run else (CI, [100], 5_000)
    jobs = [CrashJob(w, m, seed, 12, limits) for seed in seeds for w in WORKLOADS for m in MODES]
    started = time.perf_counter()
    total = run_jobs(jobs)
    seconds = time.perf_counter() - started
    line = table_line("recovery cut", total.recovery_states, "states", total, seconds)
    summary_lines.append(line)
    assert not total.violation_count, violation_report(total)
    assert not total.sites - total.sites_hit
    assert total.recovery_states >= least
