"""The share of one connection in the budget."""

from __future__ import annotations

from broker_core.remoting.limits.connection_load import REQUEST_OVERHEAD, ConnectionLoad
from broker_core.remoting.limits.request_budget import RequestBudget
from tests.remoting.peers import small_limits


def load_of(budget: RequestBudget, host: str) -> ConnectionLoad:
    host_load = budget.admit(host)
    assert host_load is not None
    return ConnectionLoad(budget, host_load)


def test_a_request_ends_once() -> None:
    budget = RequestBudget(small_limits())
    load = load_of(budget, "10.0.0.1")
    for opaque, size in ((1, 10), (1, 20), (2, 30)):
        load.hold(opaque, load.begin(size))
    assert (load.requests, load.size) == (3, 60 + 3 * REQUEST_OVERHEAD)
    for _ in range(3):
        load.answered(1)
    assert (load.requests, load.size) == (1, 30 + REQUEST_OVERHEAD)
    cost = load.unhold(2)
    assert cost == 30 + REQUEST_OVERHEAD and load.unhold(2) is None
    load.close(Waiting())
    assert budget.requests == 1
    load.end(cost)
    assert (budget.requests, budget.size) == (0, 0)


class Waiting:
    """Counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def budget_freed(self) -> None:
        self.woken += 1


def test_half_frames_count() -> None:
    budget = RequestBudget(small_limits())
    who = [Waiting() for _ in range(4)]
    loads = [load_of(budget, "10.0.0.1") for _ in range(3)]
    for number, load in enumerate(loads):
        load.note_arrived(50 << 10, who[number])
    assert budget.size == 150 << 10
    # Beyond the limit of a host one of its connections may read on; others are not concerned.
    assert [load.may_read(who[number]) for number, load in enumerate(loads)] == [True, False, False]
    assert all(load.may_work for load in loads)
    assert load_of(budget, "10.0.0.2").may_read(who[3])
    loads[1].note_arrived(0, who[1])
    assert loads[2].may_read(who[2])
    loads[1].note_arrived(60 << 10, who[1])
    assert [load.may_read(who[number]) for number, load in enumerate(loads)] == [True, False, False]
    loads[0].close(who[0])
    loads[2].note_arrived(100 << 10, who[2])
    assert [loads[2].may_read(who[2]), loads[1].may_read(who[1])] == [True, False]
    for number in (1, 2):
        loads[number].close(who[number])
    assert budget.size == 0
