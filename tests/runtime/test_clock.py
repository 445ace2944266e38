"""The clock of the machine, and wall time that does not step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.runtime.clock import SteadyTime, SystemClock, sleep
from tests.fakes.manual_clock import ManualClock


def test_the_clock_of_the_machine_goes_forward() -> None:
    clock = SystemClock()
    times = [clock.monotonic() for _ in range(100)]
    assert times == sorted(times)
    # Milliseconds of this century, not seconds.
    assert 1_700_000_000_000 < clock.wall_ms() < 5_000_000_000_000


@pytest.mark.parametrize("step_ms", [-(10**12), -1, 1, 10**12])
def test_steady_time_ignores_steps_of_the_wall_clock(step_ms: int) -> None:
    clock = ManualClock()
    clock.advance(5_000)
    steady, start_ms = SteadyTime(clock), clock.wall_ms()
    assert (steady.elapsed_ms, steady.now_ms) == (0, start_ms)
    clock.set_wall(start_ms + step_ms)
    clock.advance(250)
    assert (steady.elapsed_ms, steady.now_ms) == (250, start_ms + 250)


def test_a_cancellation_ends_a_pause(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        pause = asyncio.ensure_future(sleep(1e6))
        await asyncio.sleep(0)
        pause.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pause

    run_async(scenario())
