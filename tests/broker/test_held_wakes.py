"""Many wakes in several turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker_core.broker.held_wakes import TURN_MAX, HeldWakes

Run = Callable[..., Any]


def test_items_are_woken_in_order_and_in_turns(run_async: Run) -> None:
    async def scenario() -> None:
        seen: list[int] = []
        wakes: HeldWakes[int] = HeldWakes(seen.append)
        wakes.add(range(TURN_MAX + 1))
        assert seen == []
        await asyncio.sleep(0)
        assert seen == [*range(TURN_MAX)]
        wakes.add([-1])
        await asyncio.sleep(0)
        assert seen == [*range(TURN_MAX + 1), -1]
        assert not len(wakes)

    run_async(scenario())


def test_an_item_that_fails_does_not_stop_the_others(run_async: Run) -> None:
    seen: list[int] = []

    def wake(item: int) -> None:
        if item == 0:
            raise ValueError("planted")
        seen.append(item)

    async def scenario() -> None:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, found: problems.append(found))
        wakes = HeldWakes(wake)
        wakes.add([0, 1, 2])
        for _ in range(3):
            await asyncio.sleep(0)
        assert seen == [1, 2]
        assert len(problems) == 1

    run_async(scenario())


def test_what_is_left_can_be_taken(run_async: Run) -> None:
    async def scenario() -> None:
        seen: list[int] = []
        wakes: HeldWakes[int] = HeldWakes(seen.append)
        wakes.add([1, 2])
        assert list(wakes.taken()) == [1, 2]
        await asyncio.sleep(0)
        assert seen == []

    run_async(scenario())
