"""Fails the n-th file operation of a workload, for every n: first once, then from there on.

The client goes on after each error as real ones do. Then the process is started anew on the healed
disk, or the power is cut: everything acknowledged must be there. An error may show as a status or
as one of `broker_core.errors`; anything else is a violation.
"""

from __future__ import annotations

import dataclasses
import errno
import random
import uuid
from collections.abc import Sequence
from unittest import mock

from broker_core.errors import RmqError
from broker_core.storage.state import store_state
from broker_core.store.message_store import MessageStore
from tests.crash.checker import check
from tests.crash.harness import FAILURES, Tally, fingerprint_of, timed
from tests.crash.history import Frozen
from tests.crash.store_dump import Dump, dump_store
from tests.crash.store_run import Step, StoreRun
from tests.crash.workloads import start_run
from tests.fakes.simulated_disk import SimulatedDisk

ERRNOS = (
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EMFILE,
    errno.ENOMEM,
)
CUT_STATES = 2

# Every kind of work within few operations: appends that roll, groups, checkpoints, retention,
# tables, deletion, a clean stop and a start.
SCRIPT: Sequence[Step] = (
    StoreRun.open,
    StoreRun.put,
    StoreRun.put_batch,
    StoreRun.tick,
    StoreRun.put_group,
    StoreRun.save_table,
    StoreRun.checkpoint,
    StoreRun.publish,
    StoreRun.clean,
    StoreRun.put,
    StoreRun.delete_topic,
    StoreRun.put_together,
    StoreRun.reopen,
    StoreRun.put_batch,
    StoreRun.checkpoint,
    StoreRun.read,
    StoreRun.close,
)


@dataclasses.dataclass(frozen=True)
class ErrnoJob:
    """All operations of one script in one mode, each failed with some errors."""

    mode: str
    seed: int
    error_codes: tuple[int, ...]
    sticky: bool
    reads: bool = False
    """Whether reads, listings and look-ups fail too."""
    pairs: int = 0
    """Nightly: this many random pairs of operations instead of each single one."""
    share: tuple[int, int] = (0, 1)
    """Which of so many equal shares of the operations."""

    def run(self) -> Tally:
        """`states` counts the runs with an error, `again` the openings after them."""
        return timed(self._run)

    def _run(self) -> Tally:
        tally = Tally()
        count = self._play(tally, ()).disk.operation_count
        rng = random.Random(self.seed)
        first, step = self.share
        numbers: Sequence[tuple[int, ...]] = [(n,) for n in range(1 + first, count + 1, step)]
        if self.pairs:
            numbers = [_pair(rng, count) for _ in range(self.pairs)]
        for failing in numbers:
            openings = Openings()
            for code in self.error_codes:
                tally.states += 1
                self._judge(tally, failing, code, openings)
            tally.known += openings.known
        return tally

    def _judge(self, tally: Tally, failing: tuple[int, ...], code: int, openings: Openings) -> None:
        kind = "from" if self.sticky else "at"
        title = f"{self.mode} seed {self.seed}: {errno.errorcode[code]} {kind} "
        title += " and ".join(map(str, failing))
        try:
            run = self._play(tally, failing, code)
        except FAILURES as error:
            tally.found(title, [f"{type(error).__name__}: {error}"])
            return
        operations = run.disk._trace
        if failing[0] <= len(operations):
            method, path, _, _ = operations[failing[0] - 1]
            title += f" ({method} {path})"
        frozen = run.freeze()
        frozen.start_min = 0
        for state in run.disk.crash_states(CUT_STATES, random.Random(7)):
            tally.again += 1
            broken = openings.judged(run.disk.reboot(state), run, frozen)
            tally.found(f"{title}, then a power cut: {state.describe()}" if broken else "", broken)
        tally.again += 1
        broken = openings.judged(run.disk.kill(), run, frozen, was_killed=True)
        tally.found(f"{title}, then a new process", broken)

    def _play(self, tally: Tally, failing: tuple[int, ...], code: int = 0) -> StoreRun:
        run = start_run("narrow", self.mode, self.seed)
        run.disk.trace_reads = self.reads
        for number in failing:
            run.disk.fail(number, code, sticky=self.sticky)
        # Another name of the store each time would make all disks different.
        named = mock.patch.object(store_state.uuid, "uuid4", lambda: uuid.UUID(int=self.seed))
        try:
            with named:
                for step in SCRIPT:
                    attempt(run, step)
        finally:
            run.close_loop()
        if failing and run.disk.operation_count >= failing[0]:
            tally.points += 1
        return run


def attempt(run: StoreRun, step: Step) -> None:
    """One step; the client takes note of an error and goes on with what is left.

    A process that could not sync a directory while it opened the store is not followed by another
    one: no later sync can vouch for those names, and real file systems turn read-only there.
    """
    if run.store is None:
        lost_names = run.disk._trace and run.disk._trace[-1][0] == "sync_dir"
        if step not in (StoreRun.open, StoreRun.reopen) or lost_names:
            return
        step = StoreRun.open
    try:
        step(run)
    except RmqError:
        _take_note(run)
    except OSError as error:
        # The tables are files beside the store and report the disk's errors as they are.
        if step is not StoreRun.save_table and not str(error.filename).startswith("config"):
            raise


def _take_note(run: StoreRun) -> None:
    """The answer is unknown: read the log's end, which only this test can do."""
    append = run.history.pending
    if append is None or run.store is None:
        return
    end = run.store.log_range[1]
    if end >= append.end:
        run.history.accepted(append)
        return
    assert end <= append.start, f"half an append: the log ends at {end}, {append}"
    run.history.refused(append)
    run.history.log_end = end


class Openings:
    """Of the disks that one failed operation leaves. Equal ones are opened once.

    Most errors leave the same disk and another history. What opening gives is a function of the
    disk; it is judged against each history.
    """

    def __init__(self) -> None:
        self.known = 0
        self._found: dict[bytes, Dump] = {}

    def judged(
        self, disk: SimulatedDisk, run: StoreRun, frozen: Frozen, *, was_killed: bool = False
    ) -> list[str]:
        """What is broken."""
        fingerprint = fingerprint_of(disk, with_cache=was_killed)
        dump = self._found.get(fingerprint)
        self.known += dump is not None
        try:
            if dump is None:
                dump = self._found[fingerprint] = _opened(disk, run)
            return check(dump, frozen, disk_failed=True)
        except FAILURES as error:
            return [f"{type(error).__name__}: {error}"]


def _opened(disk: SimulatedDisk, run: StoreRun) -> Dump:
    disk.trace_reads = False
    return dump_store(MessageStore.open(disk, run.config, clock=run.clock), disk)


def _pair(rng: random.Random, count: int) -> tuple[int, int]:
    first = rng.randint(1, count)
    return first, rng.randint(first, count)
