"""The simulation with many seeds, and with bugs planted that it has to find.

A failing seed replays exactly: `run_seed(N)`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from broker_core.errors import RmqError
from broker_core.replication import follower_session, leader_session
from broker_core.replication.confirmed_note import ConfirmedNote
from broker_core.replication.log_epochs import Epoch, EpochHistory, LastRole
from broker_core.store.replication import log_cut
from broker_core.store.replication.replica_log import ReplicaLog
from tests.replication import simulated_node
from tests.replication.simulation import Broken, Violation, World, run_seed

EVERYDAY_SEEDS = 1_000
SEEDS = 10_000 if os.environ.get("RMQ_CRASH_LONG") else EVERYDAY_SEEDS
BATCHES = 8


@pytest.mark.simulation
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_schedule_breaks_a_promise(batch: int) -> None:
    acked = changes = 0
    for seed in range(batch, SEEDS, BATCHES):
        world = run_seed(seed)
        acked += len(world.acked)
        changes += sum(line.startswith(("cut", "promote")) for line in world.trace)
    assert acked > SEEDS // BATCHES
    assert changes


def test_a_seed_replays_exactly() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first.trace == second.trace
    assert first.acked == second.acked
    assert [n.bytes_from(0) for n in first.nodes] == [n.bytes_from(0) for n in second.nodes]


@contextlib.contextmanager
def ack_before_durable() -> Iterator[None]:
    """A slave reports what it has appended, synced or not."""
    with mock.patch.object(ReplicaLog, "safe_end", property(lambda self: self.end)):
        yield


@contextlib.contextmanager
def no_position_check() -> Iterator[None]:
    """Apache's way: a slave requests from its own end, and gets the master's bytes there."""

    def anything(ours: Any, our_end: int, theirs: Any, their_end: int) -> int:
        return max(our_end, their_end)

    with (
        mock.patch.object(follower_session, "agreed_end", anything),
        mock.patch.object(leader_session, "agreed_end", anything),
        mock.patch.object(ReplicaLog, "checksum", lambda self, start, end: 0),
    ):
        yield


@contextlib.contextmanager
def promotion_without_epoch() -> Iterator[None]:
    """A slave that becomes master goes on in the epoch of the old one."""
    honest = EpochHistory.begin

    def begin(self: EpochHistory, owner: str, end: int, *, new_term: bool = False) -> EpochHistory:
        current = self.current
        if current is None:
            return honest(self, owner, end)
        epochs = (*self.epochs[:-1], Epoch(*current))
        return EpochHistory(epochs, self.seen, LastRole.MASTER)

    with mock.patch.object(EpochHistory, "begin", begin):
        yield


@contextlib.contextmanager
def everything_shown_after_a_restart() -> Iterator[None]:
    """A master drops what its slaves had."""
    with mock.patch.object(simulated_node, "confirmed_at_start", lambda history, noted, end: end):
        yield


@contextlib.contextmanager
def confirmed_is_not_noted() -> Iterator[None]:
    """A master knows only what its slaves had when it was started: readers see less again."""
    with mock.patch.object(ConfirmedNote, "write", lambda self, position: None):
        yield


@contextlib.contextmanager
def rivals_go_on() -> Iterator[None]:
    """Two masters of one term do not compare their owners."""
    with mock.patch.object(EpochHistory, "outranks", lambda self, epoch, owner: False):
        yield


@contextlib.contextmanager
def cut_without_a_copy() -> Iterator[None]:
    """The end of a log that its master lacks is truncated and not saved."""
    with mock.patch.object(log_cut, "_save", lambda *_: ""):
        yield


@contextlib.contextmanager
def promotion_is_not_announced() -> Iterator[None]:
    """A slave that has not met the promoted broker follows the old master when that returns."""
    with mock.patch.object(simulated_node.Node, "expect_epoch", lambda self, epoch: None):
        yield


# What each bug does to users. Other failures on the way are not a proof.
BUGS = [
    (ack_before_durable, {Broken.ACKED_LOST}),
    (no_position_check, {Broken.SPLICED, Broken.LOGS_DIFFER}),
    (promotion_without_epoch, {Broken.TWO_MASTERS}),
    (everything_shown_after_a_restart, {Broken.SHOWN_EARLY}),
    (confirmed_is_not_noted, {Broken.TAKEN_BACK}),
    (rivals_go_on, {Broken.TWO_MASTERS}),
    (cut_without_a_copy, {Broken.NOT_SET_ASIDE}),
]


@pytest.mark.simulation
@pytest.mark.parametrize(("bug", "effects"), BUGS)
def test_planted_bugs_are_found(
    bug: Callable[[], contextlib.AbstractContextManager[None]], effects: set[Broken]
) -> None:
    """By the seeds that are run every day, and by what the bug does."""
    others = []
    with bug():
        for seed in range(EVERYDAY_SEEDS):
            try:
                run_seed(seed)
            except Violation as violation:
                if violation.broken in effects:
                    return
                others.append(str(violation)[:200])
    pytest.fail(f"{bug.__name__} was not noticed in {EVERYDAY_SEEDS} runs; others: {others[:5]}")


def test_an_old_master_acknowledges_nothing_after_an_announced_promotion() -> None:
    """This seed starts the old master while the promoted broker is down."""
    run_seed(2308)
    world = World(2308)
    with promotion_is_not_announced(), pytest.raises(Violation) as caught:
        world.run()
    assert caught.value.broken is Broken.ACKED_LOST
    # Even then they are on disk, where the documentation says.
    lost = world.acked.difference(*(node.bodies() for node in world.nodes))
    assert lost
    assert not world.nowhere(lost)


def test_two_masters_of_one_term_do_not_remain() -> None:
    """This seed promotes a slave while the other, promoted before, is down."""
    seed = 108
    world = run_seed(seed)
    assert any(line.endswith("begins a new term") for line in world.trace)
    run_seed(9697)


def test_a_harness_that_breaks_finds_nothing() -> None:
    """An error of the simulation itself is no violation."""
    broken = mock.patch.object(simulated_node.Node, "begin_epoch", side_effect=RmqError("harness"))
    with broken, pytest.raises(RmqError, match="harness"):
        run_seed(0)
