"""Deadlines of held requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker_core.broker.held_deadlines import ENDED_MAX, HeldDeadlines
from tests.fakes.manual_clock import ManualClock

Run = Callable[..., Any]


class Held:
    """A held request; `is_live` until it is ended."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.is_live = True


class Deadlines:
    """Deadlines with a clock, and the requests that expired."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.expired: list[str] = []
        self.table: HeldDeadlines[Held] = HeldDeadlines(self.clock, self._end)

    def _end(self, held: Held) -> None:
        held.is_live = False
        self.expired.append(held.name)

    def after(self, ms: float) -> list[str]:
        self.clock.advance(ms)
        self.table.expire()
        return self.expired


def test_requests_expire_in_the_order_of_their_deadlines(run_async: Run) -> None:
    async def scenario() -> None:
        deadlines = Deadlines()
        for name, timeout_ms in (("late", 300), ("early", 100), ("also early", 100)):
            deadlines.table.add(Held(name), timeout_ms)
        assert deadlines.after(99) == []
        assert deadlines.after(1) == ["early", "also early"]
        assert deadlines.after(200) == ["early", "also early", "late"]
        assert len(deadlines.table) == 0
        deadlines.table.clear()

    run_async(scenario())


def test_an_ended_request_does_not_expire(run_async: Run) -> None:
    async def scenario() -> None:
        deadlines = Deadlines()
        held = Held("answered")
        deadlines.table.add(held, 100)
        held.is_live = False
        assert deadlines.after(100) == []
        assert len(deadlines.table) == 0
        deadlines.table.clear()

    run_async(scenario())


def test_the_timer_of_the_loop_ends_a_request(run_async: Run) -> None:
    async def scenario() -> None:
        ended = asyncio.get_running_loop().create_future()
        clock = ManualClock()

        def end(held: Held) -> None:
            held.is_live = False
            ended.set_result(held.name)

        table: HeldDeadlines[Held] = HeldDeadlines(clock, end)
        table.add(Held("x"), 1)
        clock.advance(1)
        assert await ended == "x"

    run_async(scenario())


def test_ended_requests_are_dropped_when_they_are_the_majority(run_async: Run) -> None:
    async def scenario() -> None:
        deadlines = Deadlines()
        live = Held()
        deadlines.table.add(live, 1_000)
        for _ in range(ENDED_MAX + 2):
            held = Held()
            deadlines.table.add(held, 2_000)
            held.is_live = False
        deadlines.table.drop_ended(1)
        assert len(deadlines.table) == 1
        deadlines.table.clear()
        assert deadlines.after(5_000) == []

    run_async(scenario())
