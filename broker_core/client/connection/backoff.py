"""Exponential back-off with jitter."""

from __future__ import annotations

import random

from broker_core.errors import RemoteError, RmqError
from broker_core.protocol_codes import ResponseCode
from broker_core.runtime.clock import sleep

# Transient refusals: Apache also answers SYSTEM_ERROR while it starts or stops.
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


class Backoff:
    """Delays that double from `first_ms` to `most_ms`, each shortened by up to a fifth."""

    def __init__(self, first_ms: float = 50, most_ms: float = 2_000) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._next_ms = first_ms

    def reset(self) -> None:
        """Start over with the first delay, after a success."""
        self._next_ms = self._first_ms

    def next_s(self) -> float:
        """The next delay, in seconds."""
        delay_ms = self._next_ms
        self._next_ms = min(delay_ms * 2, self._most_ms)
        return delay_ms * random.uniform(0.8, 1.0) / 1000

    async def wait(self) -> None:
        """Sleep for the next delay."""
        await sleep(self.next_s())
