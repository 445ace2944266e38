"""One write for many waiters; a cancelled waiter does not affect the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from broker_core.broker.tables.write_coalescing import CoalescedWrite
from tests.broker.running_broker import until
from tests.fakes.manual_clock import ManualClock


def test_a_future_that_was_cancelled(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        written: list[Mapping[str, int]] = []
        problems: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context))
        writes: CoalescedWrite[int] = CoalescedWrite(written.append, ManualClock())
        writes.add("a", 1).cancel()
        await until(lambda: written)
        assert written == [{"a": 1}]
        assert not problems
        await writes.add("b", 2)
        assert written[1:] == [{"b": 2}]

    run_async(scenario())
