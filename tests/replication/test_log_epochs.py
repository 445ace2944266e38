"""Where two logs agree, from their epochs alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.replication.log_epochs import TERM, Epoch, EpochHistory, LastRole, agreed_end

A, B, C = Epoch(TERM, "a", 0), Epoch(TERM + 1, "b", 500), Epoch(2 * TERM, "c", 700)


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "agreed"),
    [
        ((A,), 300, (A,), 400, 300),
        ((A,), 600, (A, B), 900, 500),
        ((A, B), 600, (A, B), 900, 600),
        ((A, B), 900, (A, C), 800, 500),
        ((A, B), 600, (A, B, C), 900, 600),
        ((A, B), 900, (A, B, C), 800, 700),
        ((A,), 100, (C,), 100, None),
        ((), 0, (A,), 100, None),
    ],
)
def test_agreement(
    ours: tuple[Epoch, ...],
    our_end: int,
    theirs: tuple[Epoch, ...],
    their_end: int,
    agreed: int | None,
) -> None:
    assert agreed_end(ours, our_end, theirs, their_end) == agreed
    assert agreed_end(theirs, their_end, ours, our_end) == agreed


def test_the_epoch_that_a_log_has_come_to() -> None:
    # A restart at 500, a promotion at 700: a slave has both epochs before a byte of them.
    history = EpochHistory((A, B, C), 2 * TERM, LastRole.SLAVE)
    for end, number in ((0, TERM), (400, TERM), (501, TERM + 1), (699, TERM + 1), (700, 2 * TERM)):
        assert history.reached(end) == number
    # Another slave may have more of the epoch before the restart.
    assert history.reached(500) == TERM
    assert EpochHistory().reached(0) == 0


def test_a_restart_and_a_promotion() -> None:
    new = EpochHistory().begin("a", 0)
    assert new.seen == TERM
    again = new.begin("b", 500)
    assert again.current == (TERM + 1, "b", 500)
    slave = EpochHistory().followed(again.epochs, 0)
    assert slave.role is LastRole.SLAVE
    # It has 400 bytes: of the second epoch it knows the number, and nothing else.
    promoted = slave.begin("c", 400)
    assert promoted.epochs == (new.epochs[0], Epoch(2 * TERM, "c", 400))
    # However often the old master is started meanwhile, it stays the older one.
    for _ in range(100):
        again = again.begin("x", 500)
    assert again.seen < promoted.seen


@given(st.integers(0, 1 << 32))
def test_agreement_is_never_too_much(seed: int) -> None:
    """Random lives of two logs; the rule's answer against the bytes themselves."""
    rng = random.Random(seed)
    logs: list[tuple[EpochHistory, bytes]] = [(EpochHistory().begin("0", 0), b"")] * 3
    leader, run = 0, 1
    logs[0] = (EpochHistory().begin("0", 0), b"")
    logs[1] = logs[2] = (EpochHistory(), b"")
    for _ in range(30):
        history, data = logs[leader]
        action = rng.random()
        if action < 0.5:
            logs[leader] = (history, data + rng.randbytes(rng.randint(1, 4)))
        elif action < 0.7:
            other = rng.choice([n for n in range(3) if n != leader])
            theirs, copied = logs[other]
            agreed = (
                agreed_end(history.epochs, len(data), theirs.until(len(copied)).epochs, len(copied))
                if copied
                else 0
            )
            if agreed is not None:
                assert copied[:agreed] == data[:agreed]
                until = rng.randint(agreed, len(data))
                logs[other] = (theirs.followed(history.epochs, history.seen), data[:until])
        elif action < 0.85:
            # Restarted, perhaps without the bytes that were not synced.
            lost = rng.randint(0, min(3, len(data)))
            kept = data[: len(data) - lost]
            logs[leader] = (history.begin(str(run), len(kept)), kept)
            run += 1
        else:
            new = rng.choice([n for n in range(3) if logs[n][0].epochs])
            if new != leader:
                theirs, copied = logs[new]
                logs[new] = (theirs.begin(str(run), len(copied)), copied)
                leader, run = new, run + 1


def test_one_of_two_masters_of_a_term_outranks_the_other() -> None:
    common = EpochHistory().begin("a", 0)
    slave = EpochHistory().followed(common.epochs, common.seen)
    one, two = slave.begin("one", 400), slave.begin("two", 300).begin("zwei", 350)
    assert (one.seen, two.seen) == (2 * TERM, 2 * TERM + 1)
    assert two.outranks(one.seen, "one")
    assert not one.outranks(two.seen, "zwei")
    # An older release does not report its owner, and cannot begin a new term.
    assert one.outranks(two.seen, "")
    # Terms are compared by their numbers alone.
    assert not two.outranks(common.seen, "a")
    assert not two.outranks(3 * TERM, "a")
    assert not EpochHistory().outranks(0, "")
    newer = two.begin("drei", 400, new_term=True)
    assert newer.current == Epoch(3 * TERM, "drei", 400)
    assert newer.role is LastRole.MASTER


def test_a_broker_that_heard_of_an_epoch_begins_a_newer_one() -> None:
    slave = EpochHistory().followed((A, B), 0)
    told = slave.heard_of(3 * TERM)
    assert (told.seen, told.epochs, told.role) == (3 * TERM, slave.epochs, LastRole.SLAVE)
    assert told.heard_of(TERM) == told
    assert told.next_term == 4 * TERM
    assert told.begin("d", 600).seen == 4 * TERM
