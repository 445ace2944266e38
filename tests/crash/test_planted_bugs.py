"""The test of the tester: the harness finds every bug that is planted, and none where none is."""

from __future__ import annotations

import errno
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.store.message_store import MessageStore
from tests.crash import harness, planted_bugs
from tests.crash.errno_loop import ErrnoJob
from tests.crash.harness import Limits, Tally, violation_report
from tests.crash.jobs import CrashJob, cut_everywhere
from tests.crash.planted_bugs import ForgetfulDisk, LyingDisk, Plant, new_disk
from tests.crash.store_dump import Dump, dump_store
from tests.fakes.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.crash

FIRST = Limits(violations_max=1, recovery_hits_per_site=0, again_every=1)
CUTS_ONLY = Limits(violations_max=1, recovery_hits_per_site=0, again_every=1_000_000)
STEPS = 12


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _hunt(
    workload: str,
    mode: str,
    disk: type[SimulatedDisk] | None = None,
    limits: Limits = FIRST,
    **changes: Any,
) -> Tally:
    """Up to three seeds, until something is found."""
    total = Tally()
    for seed in range(3):
        job = CrashJob(workload, mode, seed, STEPS, limits, tuple(changes.items()))
        total.add(cut_everywhere(job, None if disk is None else new_disk(disk)))
        if total.violation_count:
            break
    return total


def _found(tally: Tally, *verdicts: str) -> None:
    report = violation_report(tally)
    assert tally.violation_count, "the planted bug was not found"
    assert any(verdict in report for verdict in verdicts), report


def test_acknowledge_before_sync() -> None:
    _found(_hunt("puts", "sync", LyingDisk), "I1 lost", "I2 hole")


def test_no_directory_sync() -> None:
    _found(_hunt("puts", "sync", ForgetfulDisk), "I1 lost", "missing")


def test_body_only_checksum() -> None:
    tally = _hunt("batches", "async", limits=CUTS_ONLY, append_record_crc=False)
    _found(tally, "I3 phantom")


@pytest.mark.parametrize(
    ("plant", "workload", "mode", "verdicts"),
    [
        (planted_bugs.table_in_place, "tables", "sync", ("table config",)),
        (planted_bugs.incomplete_groups_count, "groups", "sync", ("group [",)),
        (planted_bugs.stale_bytes_stay, "puts", "async", ("later: I",)),
        (planted_bugs.visible_before_durable, "puts", "sync", ("I7 visible",)),
        (planted_bugs.checkpoint_before_queues, "checkpoints", "sync", ("I5 order",)),
        (planted_bugs.cut_below_watermark, "puts", "sync", ("I14", "I1 lost")),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_bug_is_found(
    plant: Plant, workload: str, mode: str, verdicts: tuple[str, ...]
) -> None:
    with plant():
        _found(_hunt(workload, mode), *verdicts)


def test_an_opening_that_depends_on_more_than_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness opens equal disks once, so it has to notice when that is not enough."""
    numbers = itertools.count()

    def counting(store: MessageStore, disk: SimulatedDisk) -> Dump:
        return dump_store(store, disk)._replace(epoch=next(numbers))

    monkeypatch.setattr(harness, "dump_store", counting)
    monkeypatch.setattr(harness, "check", lambda *_, **__: [])
    sometimes = Limits(violations_max=1, recovery_hits_per_site=0, again_every=5)
    _found(_hunt("puts", "sync", limits=sometimes), "the same disk gave")


def test_equal_disks_are_opened_once() -> None:
    seldom = Limits(recovery_hits_per_site=0, again_every=8)
    tally = cut_everywhere(CrashJob("puts", "sync", 0, 6, seldom))
    assert tally.known > tally.states // 5


def test_retry_after_a_failed_sync() -> None:
    job = ErrnoJob("sync", 0, (errno.EIO,), sticky=False)
    with planted_bugs.retry_after_error():
        _found(job.run(), "I1 lost", "I3 phantom", "I2 hole", "CorruptRecord")


@pytest.mark.parametrize("workload", ["puts", "groups", "tables", "checkpoints"])
def test_nothing_is_found_where_nothing_is_planted(workload: str) -> None:
    job = CrashJob(workload, "sync", 1, 6, FIRST)
    tally = cut_everywhere(job)
    assert not tally.violation_count, violation_report(tally)
