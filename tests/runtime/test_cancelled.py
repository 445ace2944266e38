"""A task that loses a cancellation is cancelled again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker_core.runtime.cancelled import end_tasks


def test_a_lost_cancellation(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        event, rounds = asyncio.Event(), 0

        async def loop() -> None:
            nonlocal rounds
            while True:
                # Set and cancelled in one turn: before 3.12 this returns as if nothing was.
                await asyncio.wait_for(event.wait(), 3_600)
                event.clear()
                rounds += 1

        task = asyncio.ensure_future(loop())
        for _ in range(3):
            await asyncio.sleep(0)
        event.set()
        await asyncio.sleep(0)
        await end_tasks((task,))
        assert task.cancelled()
        assert rounds <= 1

    run_async(scenario())


def test_nothing_to_end(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        await end_tasks(())

        async def fails() -> None:
            raise ValueError

        task = asyncio.ensure_future(fails())
        await end_tasks((task,))
        assert task.cancelled() or isinstance(task.exception(), ValueError)

    run_async(scenario())
