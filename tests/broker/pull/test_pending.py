"""Ending a held pull or pop takes the same number of steps for any number of held requests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from broker_core.broker import held_wakes, pending_requests
from broker_core.broker.pending_requests import ENDED_MAX
from broker_core.broker.pop import pending as pending_pops
from broker_core.broker.pop.pending import LINE_MAX, PendingPops
from broker_core.broker.pull import pending as pending_pulls
from broker_core.broker.pull.pending import PendingPulls
from tests.fakes.manual_clock import ManualClock

Run = Callable[..., Any]

COUNT = 100_000
# Lines of code for each held request. A walk over all of them for each would be a thousand times
# as many.
STEPS_EACH_MAX = 100


class Connection:
    """What the tables use of a connection."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.load = self
        self.callbacks: list[Callable[[Any], object]] = []

    def suspend(self, opaque: int, account: str) -> bool:
        return True

    def on_close(self, callback: Callable[[Any], object]) -> None:
        self.callbacks.append(callback)

    def close(self) -> None:
        for callback in self.callbacks:
            callback(self)


@contextmanager
def steps_at_most(limit: int) -> Iterator[None]:
    """Counts the lines that run in the tables' own code; the first one too many raises."""
    files = {
        module.__file__ for module in (pending_pulls, pending_pops, pending_requests, held_wakes)
    }
    steps = 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        if steps > limit:
            raise AssertionError(f"more than {limit} steps, in {frame.f_code.co_name}")
        return local

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return local if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


class Held:
    """A table with `COUNT` held requests, of a few connections."""

    def __init__(self, table: Any, answers: bool) -> None:
        self.clock = ManualClock()
        self.table = table(self.clock)
        self.answered = 0
        self.connections = [Connection() for _ in range(4)]
        # A pull that is tried and finds something answers; at its deadline it always does.
        self._answers = answers
        for number in range(COUNT):
            connection: Any = self.connections[number % 4]
            if isinstance(self.table, PendingPulls):
                self.table.hold(connection, number, (b"T", 0), 60_000, self._retry)
            else:
                wanted = number // LINE_MAX
                self.table.hold(connection, number, "G", "T", wanted, 60_000, self._retry)
        assert len(self.table) == COUNT

    def _retry(self, final: bool, *_: Any) -> bool:
        self.answered += final or self._answers
        return final or self._answers


def close(held: Held) -> int:
    for connection in held.connections:
        connection.close()
    return 0


def expire(held: Held) -> int:
    held.clock.advance(61_000)
    held.table._held.deadlines.expire()
    return COUNT


def arrive(held: Held) -> int:
    held.table.arrived(b"T", 0, 1)
    return COUNT


def release(held: Held) -> int:
    held.table.release_all()
    return COUNT


@pytest.mark.parametrize("end", [close, expire, arrive, release])
@pytest.mark.parametrize("table", [PendingPulls, PendingPops])
def test_ending_all_of_them_takes_a_few_steps_each(
    run_async: Run, table: Any, end: Callable[[Held], int]
) -> None:
    async def scenario() -> None:
        held = Held(table, answers=end is arrive)
        with steps_at_most(STEPS_EACH_MAX * COUNT):
            answered = end(held)
            for _ in range(COUNT // held_wakes.TURN_MAX + 1):
                await asyncio.sleep(0)
        assert (len(held.table), held.answered) == (0, answered)
        held.table.release_all()

    run_async(scenario())


@pytest.mark.parametrize("table", [PendingPulls, PendingPops])
def test_nothing_is_kept_of_those_that_ended(run_async: Run, table: Any) -> None:
    """Clients connect and disconnect long before their deadlines."""

    async def scenario() -> None:
        held = Held(table, answers=False)
        close(held)
        assert len(held.table._held.deadlines) <= ENDED_MAX
        assert not (held.table._by_queue if table is PendingPulls else held.table._lines)
        held.table.release_all()

    run_async(scenario())


@pytest.mark.parametrize("table", [PendingPulls, PendingPops])
def test_an_arrival_wakes_few_at_once(run_async: Run, table: Any) -> None:
    """Most of a hundred thousand may wait for other messages of the queue."""

    async def scenario() -> None:
        tried: list[int] = []
        pending = table(ManualClock())
        connection: Any = Connection()
        count = 10 * held_wakes.TURN_MAX
        for number in range(count):

            def retry(final: bool, *_: Any, number: int = number) -> bool:
                tried.append(number)
                return final

            if table is PendingPulls:
                pending.hold(connection, number, (b"T", 0), 60_000, retry)
            else:
                # Each in a line of its own, as with different filters.
                pending.hold(connection, number, "G", "T", number, 60_000, retry)
        pending.arrived(b"T", 0, 1)
        most = 0
        while len(pending._wakes):
            before = len(tried)
            await asyncio.sleep(0)
            most = max(most, len(tried) - before)
            if before < count // 2 <= len(tried):
                # Those that were tried are tried again, the others once.
                again = len(tried)
                pending.arrived(b"T", 0, 2)
        assert 0 < most <= held_wakes.TURN_MAX
        assert tried == [*range(count), *range(again)]
        assert len(pending) == count
        pending.arrived(b"T", 0, 3)
        pending.release_all()
        assert not len(pending)
        await asyncio.sleep(0)
        assert len(tried) == 2 * count + again

    run_async(scenario())


def test_pulls_are_tried_in_the_order_of_their_arrival(run_async: Run) -> None:
    async def scenario() -> None:
        table = PendingPulls(ManualClock())
        seen: list[int] = []
        connection: Any = Connection()

        def hold(number: int, answers_at: int) -> None:
            tries = iter(range(10))

            def retry(final: bool) -> bool:
                seen.append(number)
                return final or next(tries) >= answers_at

            table.hold(connection, number, (b"T", 0), 60_000, retry)

        for number in range(4):
            hold(number, answers_at=number % 2)
        table.arrived(b"T", 0, 1)
        hold(4, answers_at=0)
        table.arrived(b"T", 0, 2)
        assert seen == [0, 1, 2, 3, 1, 3, 4]
        table.release_all()

    run_async(scenario())


def expire_now(pending: Any, clock: ManualClock) -> None:
    clock.advance(61_000)
    pending._held.deadlines.expire()


def release_now(pending: Any, clock: ManualClock) -> None:
    pending.release_all()


def arrive_now(pending: Any, clock: ManualClock) -> None:
    pending.arrived(b"T", 0, 1)


@pytest.mark.parametrize("end", [expire_now, release_now, arrive_now])
@pytest.mark.parametrize("table", [PendingPulls, PendingPops])
def test_a_request_whose_last_read_finds_new_messages_is_answered_once(
    end: Callable[[Any, ManualClock], object],
    table: type[PendingPulls | PendingPops],
    run_async: Run,
) -> None:
    """A read may dispatch messages, which wake the same request."""

    async def scenario() -> None:
        connection: Any = Connection()
        clock = ManualClock()
        pending = table(clock)
        tries: list[bool] = []

        def retry(final: bool, *_: Any) -> bool:
            tries.append(final)
            pending.arrived(b"T", 0, 2)
            return True

        if isinstance(pending, PendingPulls):
            pending.hold(connection, 1, (b"T", 0), 60_000, retry)
            pending.hold(connection, 2, (b"U", 0), 90_000, lambda final: final)
        else:
            pending.hold(connection, 1, "G", "T", None, 60_000, retry)
            pending.hold(connection, 2, "G", "U", None, 90_000, lambda final, place: final)
        end(pending, clock)
        assert len(tries) == 1
        pending.release_all()
        assert len(pending) == 0

    run_async(scenario())
