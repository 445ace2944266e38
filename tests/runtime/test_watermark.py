"""A position that only grows, and its waiters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.runtime.watermark import Watermark


def test_a_watermark_only_grows() -> None:
    mark = Watermark(10)
    mark.advance(5)
    assert mark.position == 10
    mark.advance(12)
    assert mark.position == 12


def test_waiters_at_or_below_are_woken_once() -> None:
    mark = Watermark(0)
    heard: list[tuple[int, BaseException | None]] = []
    for position in (3, 1, 2, 2):
        mark.when(position, lambda failure, position=position: heard.append((position, failure)))
    assert (heard, mark.waiting) == ([], 4)
    mark.advance(2)
    assert heard == [(1, None), (2, None), (2, None)]
    mark.advance(3)
    assert heard[3:] == [(3, None)]
    assert mark.waiting == 0
    mark.when(3, lambda failure: heard.append((0, failure)))
    assert heard[-1] == (0, None), "a reached position is answered at once"


@given(st.lists(st.one_of(st.integers(0, 50), st.tuples(st.integers(0, 50))), max_size=40))
def test_waiters_are_woken_in_order_and_in_time(steps: list[int | tuple[int]]) -> None:
    mark = Watermark(0)
    waiting: list[int] = []
    woken: list[int] = []
    for step in steps:
        if isinstance(step, tuple):
            woken.clear()
            mark.advance(step[0])
            due = sorted(position for position in waiting if position <= mark.position)
            assert woken == due
            waiting = [position for position in waiting if position > mark.position]
        else:
            if step > mark.position:
                waiting.append(step)
            mark.when(step, lambda _, step=step: woken.append(step))
        assert mark.waiting == len(waiting)


def test_a_failure_reaches_all_waiters_above_and_all_later_ones() -> None:
    mark = Watermark(0)
    heard: list[BaseException | None] = []
    mark.when(5, heard.append)
    failure = RuntimeError("gone")
    mark.fail(failure)
    assert heard == [failure]
    mark.when(1, heard.append)
    assert heard == [failure, failure]
    mark.when(0, heard.append)
    assert heard[-1] is None, "what was reached stays reached"


def test_a_waiter_may_wait_again() -> None:
    mark = Watermark(0)
    heard: list[int] = []

    def first(_: BaseException | None) -> None:
        heard.append(1)
        mark.when(2, lambda _: heard.append(2))
        mark.when(9, lambda _: heard.append(9))

    mark.when(1, first)
    mark.advance(5)
    assert heard == [1, 2]
    mark.advance(9)
    assert heard == [1, 2, 9]


def test_tasks_wait(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        mark = Watermark(0)
        await mark.reached(0)
        task = asyncio.create_task(mark.reached(7))
        cancelled = asyncio.create_task(mark.reached(7))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        mark.advance(7)
        await task
        late = asyncio.create_task(mark.reached(8))
        await asyncio.sleep(0)
        mark.fail(ValueError("never"))
        with pytest.raises(ValueError, match="never"):
            await late
        with pytest.raises(ValueError, match="never"):
            await mark.reached(9)

    run_async(scenario())


@pytest.mark.parametrize("ends", ["reached", "failed"])
def test_waiters_that_raise_do_not_stop_others(ends: str) -> None:
    mark = Watermark(0)
    heard: list[int] = []

    def waiter(number: int) -> Callable[[BaseException | None], None]:
        def wake(_: BaseException | None) -> None:
            heard.append(number)
            if number % 3 == 0:
                raise ZeroDivisionError(number)

        return wake

    for number in range(20):
        mark.when(number + 1, waiter(number))
    with pytest.raises(ZeroDivisionError):
        if ends == "reached":
            mark.advance(15)
        else:
            mark.fail(OSError("disk"))
    assert heard == list(range(15 if ends == "reached" else 20))
    assert mark.waiting == (5 if ends == "reached" else 0)
