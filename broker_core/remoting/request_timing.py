"""Latency of requests from parsing to answer: histograms by code, slow requests logged.

A server that measures wraps its handler in `RequestTiming` and uses its connection loads; others
have no overhead. The hold time that a client asked for does not count as slow.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Awaitable
from typing import Final

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.limits.connection_load import ConnectionLoad
from broker_core.remoting.limits.request_budget import HostLoad, RequestBudget, WaitsForBudget
from broker_core.remoting.request_dispatch import Handler, Result
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)

# Upper bounds in milliseconds.
BUCKETS_MS: Final = (1, 3, 5, 10, 30, 50, 100, 300, 500, 1_000, 3_000, 10_000)
# Limit of distinct codes, since peers choose them; further codes share one histogram.
CODES_MAX: Final = 512
OTHER_CODE: Final = -1

# Requests that may be held -> the field with the hold time.
_HELD: Final = {
    RequestCode.PULL_MESSAGE: "suspendTimeoutMillis",
    RequestCode.LITE_PULL_MESSAGE: "suspendTimeoutMillis",
    RequestCode.BULK_PULL: "suspendTimeoutMillis",
    RequestCode.POP_MESSAGE: "pollTime",
    RequestCode.NOTIFICATION: "pollTime",
}
_LOGGED_PER_MINUTE: Final = 100


class Latencies:
    """One histogram."""

    __slots__ = ("buckets", "sum_ms")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_MS) + 1)
        self.sum_ms = 0.0


class RequestTiming:
    """The handler of a server that measures; `latencies` is by request code."""

    def __init__(self, handler: Handler, clock: Clock, slow_ms: int = 0) -> None:
        self._handler = handler
        self._monotonic = clock.monotonic
        self._slow_ms = slow_ms
        self.latencies: dict[int, Latencies] = {}
        self.slow_count = 0
        self._logged_from = clock.monotonic()
        self._logged_count = 0

    def new_load(self, budget: RequestBudget, host: HostLoad) -> ConnectionLoad:
        """The load of a new connection of the same server."""
        return _TimedLoad(budget, host, self)

    def __call__(
        self, connection: Connection, command: RemotingCommand
    ) -> Result | Awaitable[Result]:
        """Call the handler; the answer stops the timer."""
        load = connection.load
        if not command.is_oneway and isinstance(load, _TimedLoad):
            # Keep only what the log line needs.
            held = command if command.code in _HELD else None
            load.begun[command.opaque] = (self._monotonic(), command.code, connection, held)
        return self._handler(connection, command)

    def ended(
        self, began: float, code: int, connection: Connection, held: RemotingCommand | None
    ) -> None:
        """Count one answer."""
        took_ms = (self._monotonic() - began) * 1000
        found = self.latencies.get(code)
        if found is None:
            known = code if len(self.latencies) < CODES_MAX else OTHER_CODE
            found = self.latencies.setdefault(known, Latencies())
        found.buckets[bisect_left(BUCKETS_MS, took_ms)] += 1
        found.sum_ms += took_ms
        if self._slow_ms and took_ms >= self._slow_ms:
            allowed_ms = _asked_ms(held) if held is not None else 0
            if took_ms >= self._slow_ms + allowed_ms:
                self._log_slow(code, connection, took_ms)

    def _log_slow(self, code: int, connection: Connection, took_ms: float) -> None:
        self.slow_count += 1
        now = self._monotonic()
        if now - self._logged_from >= 60:
            self._logged_from, self._logged_count = now, 0
        self._logged_count += 1
        if self._logged_count <= _LOGGED_PER_MINUTE:
            peer = connection.peer_text
            _log.warning("slow request: code %d of %s took %d ms", code, peer, took_ms)


class _TimedLoad(ConnectionLoad):
    """Records when each request of its connection began."""

    __slots__ = ("_timing", "begun")

    def __init__(self, budget: RequestBudget, host: HostLoad, timing: RequestTiming) -> None:
        super().__init__(budget, host)
        self._timing = timing
        self.begun: dict[int, tuple[float, int, Connection, RemotingCommand | None]] = {}

    def answered(self, opaque: int) -> None:
        begun = self.begun.pop(opaque, None)
        if begun is not None:
            self._timing.ended(*begun)
        super().answered(opaque)

    def close(self, who: WaitsForBudget) -> None:
        self.begun.clear()
        super().close(who)


def _asked_ms(held: RemotingCommand) -> int:
    text = held.ext.get(_HELD[RequestCode(held.code)], "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
