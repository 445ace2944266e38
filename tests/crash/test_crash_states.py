"""F01: the power is cut before every file operation of every workload, in every flush mode.

Each possible disk is opened and judged (I1 to I7, I13, I14, I17, groups, staging, tables).
`make test-crash LONG=1` tries up to 512 states per moment until five million were seen.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from broker_core.storage.log import append_scan_cache, commit_log, group_writer
from broker_core.storage.log.append_scan_cache import AppendScanCache
from broker_core.storage.log.log_walk import Step
from tests.crash.harness import Limits, Tally, violation_report
from tests.crash.jobs import CrashJob, cut_everywhere, run_jobs, table_line
from tests.crash.workloads import MODES, WORKLOADS

pytestmark = pytest.mark.crash

# Recoveries are cut by test_recovery_crashes.py.
CI = Limits(states_per_point=16, recovery_hits_per_site=0, again_every=8)
# The same workloads on another way through the code: a few states of each moment.
OTHER_WAY = Limits(states_per_point=4, recovery_hits_per_site=0, again_every=8)
NIGHT = Limits(states_per_point=512, recovery_hits_per_site=0)
CI_STATES_MIN = 50_000
NIGHT_STATES_MIN = 5_000_000


def _jobs(seed: int, steps: int, limits: Limits) -> list[CrashJob]:
    return [CrashJob(w, m, seed, steps, limits) for w in WORKLOADS for m in MODES]


def _rounds(long_run: bool) -> Iterator[list[CrashJob]]:
    if not long_run:
        yield _jobs(0, 11, CI)
        return
    for seed in itertools.count():
        yield _jobs(seed, 30, NIGHT)


def test_every_crash_state_recovers(long_run: bool, summary_lines: list[str]) -> None:
    total = Tally()
    started = time.perf_counter()
    least = NIGHT_STATES_MIN if long_run else CI_STATES_MIN
    for jobs in _rounds(long_run):
        total.add(run_jobs(jobs))
        if total.states >= least or total.violation_count:
            break
    seconds = time.perf_counter() - started
    summary_lines.append(table_line("power cuts", total.states, "states", total, seconds))
    summary_lines.append(table_line("on known disks", total.known, "states", total, seconds))
    summary_lines.append(table_line("kills", total.kills, "states", total, seconds))
    summary_lines.append(table_line("opened again", total.again, "states", total, seconds))
    assert not total.violation_count, violation_report(total)
    assert not total.sites - total.sites_hit
    assert total.states >= least


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", ["batches", "groups", "staging"])
def test_the_ways_of_long_appends(
    monkeypatch: pytest.MonkeyPatch, workload: str, mode: str, long_run: bool
) -> None:
    """Everything goes the way that only megabytes go: buffers, shared runs, kept steps."""
    kept = []
    keep = AppendScanCache.keep

    def counting(steps: AppendScanCache, step: Step | None) -> None:
        kept.append(step is not None)
        keep(steps, step)

    monkeypatch.setattr(AppendScanCache, "keep", counting)
    monkeypatch.setattr(commit_log, "LARGE_SIZE", 0)
    monkeypatch.setattr(append_scan_cache, "SIZE_MIN", 1)
    monkeypatch.setattr(append_scan_cache, "SCANS_PAY", True)
    monkeypatch.setattr(group_writer, "SHARED_SIZE_MIN", 1)
    tally = cut_everywhere(CrashJob(workload, mode, 0, 11, CI if long_run else OTHER_WAY))
    assert not tally.violation_count, violation_report(tally)
    assert tally.states > 100
    assert any(kept)


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_are_written(monkeypatch: pytest.MonkeyPatch, mode: str, long_run: bool) -> None:
    """Rows of several queues, with one write to the file instead of stores into its map."""
    monkeypatch.setattr(commit_log, "WRITTEN_SIZE_MIN", 0)
    tally = cut_everywhere(CrashJob("rows", mode, 0, 11, CI if long_run else OTHER_WAY))
    assert not tally.violation_count, violation_report(tally)
    assert tally.states > 100
