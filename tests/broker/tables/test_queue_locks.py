"""Order locks: one owner at a time, refreshed, expired, bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.tables.queue_locks import QueueLocks
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import LimitReached
from tests.fakes.manual_clock import ManualClock

Q = [MessageQueue("T", "broker-a", number) for number in range(4)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def locks(clock: ManualClock) -> QueueLocks:
    return QueueLocks(clock, 60_000)


def test_one_owner_at_a_time(locks: QueueLocks) -> None:
    assert locks.lock("g", "a", Q[:3]) == Q[:3]
    assert locks.lock("g", "b", Q) == Q[3:]
    assert locks.owner("g", "T", 0) == "a"
    assert locks.owner("g", "T", 3) == "b"
    assert locks.lock("other", "b", Q) == Q, "groups do not share locks"


def test_only_the_owner_can_give_it_back(locks: QueueLocks) -> None:
    locks.lock("g", "a", Q)
    locks.unlock("g", "b", Q)
    assert locks.owner("g", "T", 0) == "a"
    locks.unlock("g", "a", Q[:1])
    assert locks.lock("g", "b", Q) == Q[:1]
    locks.unlock("nobody", "a", Q)


def test_a_lock_ends_a_minute_after_its_last_refresh(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "a", Q[:1])
    clock.advance(59_999)
    assert locks.lock("g", "b", Q[:1]) == []
    assert locks.lock("g", "a", Q[:1]) == Q[:1]
    clock.advance(59_999)
    assert locks.owner("g", "T", 0) == "a"
    assert locks.has_locks("g")
    clock.advance(1)
    assert locks.owner("g", "T", 0) is None
    assert not locks.has_locks("g")
    assert locks.lock("g", "b", Q[:1]) == Q[:1]
    assert locks.lock("g", "a", Q[:1]) == []


def test_the_wall_clock_does_not_matter(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "a", Q)
    clock.set_wall(1 << 50)
    assert locks.lock("g", "b", Q) == []


def test_a_queue_is_ours_whatever_broker_it_names(locks: QueueLocks) -> None:
    locks.lock("g", "a", Q[:1])
    assert locks.lock("g", "b", [Q[0]._replace(broker_name="other")]) == []
    assert len(locks) == 1


def test_nothing_is_left_of_what_ended(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "a", Q)
    locks.lock("h", "a", Q[:2])
    assert len(locks) == 6
    locks.unlock("h", "a", Q)
    assert len(locks) == 4
    clock.advance(60_000)
    assert locks.expire() == 4
    assert (len(locks), locks.expire(), locks.has_locks("g")) == (0, 0, False)


def test_limits(clock: ManualClock) -> None:
    locks = QueueLocks(clock, 60_000, locks_max=2)
    locks.lock("g", "a", Q[:2])
    with pytest.raises(LimitReached):
        locks.lock("g", "a", Q)
    assert locks.lock("g", "a", Q[:2]) == Q[:2]
    clock.advance(60_000)
    assert locks.lock("h", "b", Q[2:]) == Q[2:], "ended locks make room"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["lock", "unlock", "wait"]),
            st.sampled_from("ab"),
            st.integers(0, 3),
        ),
        max_size=40,
    )
)
def test_any_history_agrees_with_a_plain_model(steps: list[tuple[str, str, int]]) -> None:
    clock = ManualClock()
    locks = QueueLocks(clock, 60_000)
    model: dict[int, tuple[str, float]] = {}
    for kind, client, number in steps:
        now = clock.monotonic()
        owner = model.get(number)
        if owner is not None and owner[1] <= now:
            owner = None
        if kind == "lock":
            granted = owner is None or owner[0] == client
            assert locks.lock("g", client, [Q[number]]) == ([Q[number]] if granted else [])
            if granted:
                model[number] = (client, now + 60)
        elif kind == "unlock":
            locks.unlock("g", client, [Q[number]])
            if number in model and model[number][0] == client:
                del model[number]
        else:
            clock.advance(25_000)
        live = {n: held for n, (held, ends) in model.items() if ends > clock.monotonic()}
        assert {n: locks.owner("g", "T", n) for n in range(4)} == {n: live.get(n) for n in range(4)}
        assert locks.has_locks("g") == bool(live)
        assert len(locks) >= len(live)
