"""A periodic check whose runs never overlap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker_core.runtime.repeated_check import RepeatedCheck


class Counted(RepeatedCheck):
    """Each run waits until the test lets it end."""

    def __init__(self) -> None:
        super().__init__(0.001)
        self.running = self.most = self.ended = 0
        self.may_end = asyncio.Event()
        self.began = asyncio.Event()

    async def check(self) -> bool:
        self.running += 1
        self.most = max(self.most, self.running)
        self.began.set()
        await self.may_end.wait()
        self.running -= 1
        self.ended += 1
        return False


def test_one_run_at_a_time_and_none_after_the_stop(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        check = Counted()
        check.begin()
        check.begin()
        await check.began.wait()
        stopping = asyncio.ensure_future(check.stop())
        await asyncio.sleep(0)
        assert not stopping.done(), "the run under way is waited for"
        check.may_end.set()
        await stopping
        assert (check.most, check.ended, check.running) == (1, 1, 0)

    run_async(scenario())


def test_a_check_that_never_began_can_be_stopped(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        await Counted().stop()

    run_async(scenario())
