"""Limits of peers, per connection, per host and in total."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.config import RemotingLimits
from broker_core.errors import InvalidConfig
from broker_core.remoting.limits.connection_load import ConnectionLoad
from broker_core.remoting.limits.request_budget import RequestBudget
from tests.remoting.peers import small_limits


def load_of(budget: RequestBudget, host: str) -> ConnectionLoad:
    host_load = budget.admit(host)
    assert host_load is not None
    return ConnectionLoad(budget, host_load)


def test_connections_per_host_and_in_all() -> None:
    budget = RequestBudget(small_limits(connections_max=5, connections_per_ip_max=2))
    loads = [budget.admit(host) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2")]
    assert budget.admit("10.0.0.1") is None
    assert budget.admit("10.0.0.3") is not None
    assert budget.admit("10.0.0.4") is not None
    assert budget.admit("10.0.0.5") is None
    assert loads[0] is loads[1] is not None
    budget.leave(loads[0])
    assert budget.admit("10.0.0.1") is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "local"])
def test_this_machine_may_connect_as_often_as_it_likes(host: str) -> None:
    budget = RequestBudget(small_limits(connections_per_ip_max=1))
    assert all(budget.admit(host) is not None for _ in range(10))


def test_hosts_are_forgotten() -> None:
    budget = RequestBudget(small_limits())
    for number in range(1_000):
        load = load_of(budget, f"10.0.{number // 256}.{number % 256}")
        cost = load.begin(100)
        load.close(Waiting())
        # Work that outlives its connection.
        load.end(cost)
    assert (budget.connections, budget.requests, budget.size, len(budget._hosts)) == (0, 0, 0, 0)


class Waiting:
    """Counts how often it was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def budget_freed(self) -> None:
        self.woken += 1


def test_beyond_the_limit_of_all_one_may_read_on() -> None:
    budget = RequestBudget(small_limits())
    who = [Waiting() for _ in range(8)]
    loads = [load_of(budget, f"10.0.0.{number}") for number in range(8)]
    for number, load in enumerate(loads):
        load.note_arrived(40 << 10, who[number])
    assert sum(load.may_read(who[number]) for number, load in enumerate(loads)) == 1
    assert loads[0].may_read(who[0])
    loads[0].note_arrived(0, who[0])
    assert sum(load.may_read(who[number]) for number, load in enumerate(loads)) == 1


def test_limits_of_bytes() -> None:
    budget = RequestBudget(small_limits())
    one = load_of(budget, "127.0.0.1")
    one.hold(1, one.begin(64 << 10))
    assert not one.may_work
    one.answered(1)
    assert one.may_work
    others = [load_of(budget, f"10.0.0.{number}") for number in range(5)]
    for load in others:
        load.hold(1, load.begin(60 << 10))
    assert not one.may_work
    others[0].answered(1)
    assert one.may_work
    loads = [load_of(budget, "10.0.0.1") for _ in range(2)]
    for load in loads:
        load.hold(1, load.begin(60 << 10))
    assert not others[1].may_work


def test_waiters_are_woken_once_per_turn(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        budget = RequestBudget(small_limits())
        load = load_of(budget, "10.0.0.1")
        first, second = Waiting(), Waiting()
        costs = [load.begin(10) for _ in range(3)]
        budget.wait(first)
        budget.wait(second)
        budget.forget(second)
        for cost in costs:
            load.end(cost)
        await asyncio.sleep(0)
        assert (first.woken, second.woken) == (1, 0)

    run_async(scenario())


@pytest.mark.parametrize(
    "changes",
    [
        {"frame_size_max": 0},
        {"frame_size_max": -1},
        {"frame_size_max": 1 << 31},
        {"header_size_max": 1 << 20},
        {"requests_max": True},
        {"idle_timeout_ms": 1.5},
        {"connections_max": "10"},
        {"write_buffer_max": 100},
        {"in_flight_size_max": 64 << 10},
    ],
    ids=str,
)
def test_limits_that_cannot_be_used(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        small_limits(**changes)


def test_default_limits() -> None:
    limits = RemotingLimits()
    assert (limits.frame_size_max, limits.header_size_max) == (16 << 20, 64 << 10)
    assert (limits.connections_max, limits.connections_per_ip_max) == (16_384, 256)
    assert (limits.partial_frame_timeout_ms, limits.idle_timeout_ms) == (30_000, 120_000)
