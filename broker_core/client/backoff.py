"""Waiting between tries, longer each time and never in step with others."""

from __future__ import annotations

import asyncio
import random

from broker_core.errors import RemoteError, RmqError
from broker_core.protocol_codes import ResponseCode

# Refusals that pass: Apache answers SYSTEM_ERROR also while it starts or stops.
_PASSING_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)


def may_pass(error: RmqError) -> bool:
    """Whether the same request may succeed later."""
    return error.retriable or (isinstance(error, RemoteError) and error.code in _PASSING_CODES)


async def pause(seconds: float) -> None:
    """Let the time pass; whoever waits here is woken early only by being cancelled."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()


class Backoff:
    """Delays that double from `first_ms` to `most_ms`, each shortened by up to a fifth."""

    def __init__(self, first_ms: float = 50, most_ms: float = 2_000) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._next_ms = first_ms

    def reset(self) -> None:
        """It worked: the next delay is the first again."""
        self._next_ms = self._first_ms

    def next_s(self) -> float:
        """The next delay, in seconds."""
        delay_ms = self._next_ms
        self._next_ms = min(delay_ms * 2, self._most_ms)
        return delay_ms * random.uniform(0.8, 1.0) / 1000

    async def wait(self) -> None:
        """Let the next delay pass."""
        await pause(self.next_s())
