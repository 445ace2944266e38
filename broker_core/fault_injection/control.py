"""Faults of a test broker, requested by the process that has started it.

Requests are lines of JSON on the broker's standard input, a pipe that only its owner has. They
cannot be sent to a port, and a broker that other machines can reach has no such control.

    {"do": "begin", "fault": "latency", "limit_s": 600, "seconds": 0.2}     {"ok": true}
    {"do": "end", "fault": "latency"}                                       {"ok": true}
    {"do": "advance", "seconds": 10}                                        {"ok": true, …}

Every fault ends after `limit_s` at the latest.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from broker_core.broker.broker import Broker
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.errors import InvalidArgument, InvalidConfig, RmqError
from broker_core.fault_injection.advanced_clock import AdvancedClock
from broker_core.fault_injection.disk import DiskFaults, FaultyFileSystem
from broker_core.fault_injection.network import NetworkFaults
from broker_core.fault_injection.requests import RequestFaults
from broker_core.nameserver.name_server import NameServer
from broker_core.runtime.clock import SystemClock, sleep

_log = logging.getLogger(__name__)

LIMIT_MAX_S: Final = 3_600.0
_DELAY_MAX_S: Final = 600.0
_COUNT_MAX: Final = 1_000_000
_SETTLED_POLL_S: Final = 0.01
_SETTLED_WITHIN_S: Final = 120.0

Request = Mapping[str, Any]


class FaultControl:
    """Faults of one broker and its name server. Event loop only."""

    def __init__(self, config: BrokerConfig, *, clock_ahead_s: float | None = None) -> None:
        """`clock_ahead_s` adds a clock that can be moved and starts this far ahead."""
        if config.allow_remote:
            raise InvalidConfig(
                "allowRemote", "true", "false for a broker with faults: others could be affected"
            )
        self.clock = None if clock_ahead_s is None else AdvancedClock(clock_ahead_s)
        self.disk = DiskFaults()
        self._broker: Broker | None = None
        self._networks: list[NetworkFaults] = []
        self._requests: RequestFaults | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # Called by the server

    def broker(self, config: BrokerConfig) -> Broker:
        """The broker that has the faults."""
        self._broker = Broker(
            config,
            clock=self.clock,
            # Client expiry uses real time; otherwise a jump would expire every client.
            peer_clock=SystemClock(),
            open_files=partial(FaultyFileSystem, self.disk),
        )
        return self._broker

    def begin(self, name_server: NameServer) -> None:
        """Both serve from now on."""
        server = self._started.server
        own = NetworkFaults(server)
        self._networks = [own, NetworkFaults(name_server.server)]
        self._requests = RequestFaults(server, own, self.disk)

    async def answer(self, line: str) -> str:
        """The answer to one line of the owner."""
        try:
            request = json.loads(line)
            done = await self._do(request)
        except RmqError as error:
            return json.dumps({"ok": False, "error": str(error)})
        except Exception as error:  # noqa: BLE001 - the owner waits for an answer to every line
            _log.warning("the request of a test failed", exc_info=True)
            return json.dumps({"ok": False, "error": f"{type(error).__name__}: {error}"})
        return json.dumps({"ok": True, **done})

    # Inside

    @property
    def _started(self) -> Broker:
        assert self._broker is not None
        return self._broker

    async def _do(self, request: Request) -> dict[str, Any]:
        what = request["do"]
        if what == "advance":
            return await self._advance(_number(request, "seconds"))
        fault = request["fault"]
        change = self._faults().get(fault)
        if change is None or what not in ("begin", "end"):
            raise InvalidArgument(f"no fault {fault!r:.40} to {what!r:.40}")
        if what == "begin" and fault in self._timers and fault != "kill_at":
            # The end of an inner block would end the outer one, too.
            raise InvalidArgument(f"fault {fault} is there already: end it before another one")
        timer = self._timers.pop(fault, None)
        if timer is not None:
            timer.cancel()
        if what == "begin":
            limit_s = _number(request, "limit_s", LIMIT_MAX_S)
            change(request)
            loop = asyncio.get_running_loop()
            self._timers[fault] = loop.call_later(limit_s, self._over, fault, change)
            _log.warning("fault %s begins: on purpose", fault)
        else:
            change(None)
            _log.warning("fault %s ends", fault)
        return {"sync_failed": self.disk.has_failed}

    def _over(self, fault: str, change: Callable[[Request | None], None]) -> None:
        self._timers.pop(fault, None)
        change(None)
        _log.warning("fault %s ends: its time is over", fault)

    def _faults(self) -> dict[str, Callable[[Request | None], None]]:
        """Each takes the request that begins it, or None to end it."""
        return {
            "busy": self._busy,
            "latency": self._latency,
            "dropped_connections": self._drop,
            "partition": self._cut,
            "slow_sync": self._slow_sync,
            "failing_sync": self._failing_sync,
            "full_disk": self._full_disk,
            "kill_at": self._kill_at,
        }

    def _busy(self, request: Request | None) -> None:
        assert self._requests is not None
        self._requests.be_busy(request is not None)

    def _latency(self, request: Request | None) -> None:
        delay_s = 0.0 if request is None else _number(request, "seconds", _DELAY_MAX_S)
        self._networks[0].delay_s = delay_s
        self._networks[0].changed()

    def _drop(self, request: Request | None) -> None:
        self._networks[0].drop(0 if request is None else _count(request, "every"))

    def _cut(self, request: Request | None) -> None:
        for network in self._networks:
            network.is_cut = request is not None
            network.changed()

    def _slow_sync(self, request: Request | None) -> None:
        self.disk.delay_syncs(0.0 if request is None else _number(request, "seconds", _DELAY_MAX_S))

    def _failing_sync(self, request: Request | None) -> None:
        self.disk.fails_syncs = request is not None

    def _full_disk(self, request: Request | None) -> None:
        self.disk.is_full = request is not None
        # Otherwise only the next round of retention would notice it.
        self._started.context.store.clean()

    def _kill_at(self, request: Request | None) -> None:
        assert self._requests is not None
        if request is None:
            self._requests.kill_at("")
        else:
            self._requests.kill_at(str(request["point"]), _count(request, "occurrence"))

    async def _advance(self, seconds: float) -> dict[str, Any]:
        """Move the clock and wait until what is due then is delivered."""
        if self.clock is None:
            raise InvalidArgument(
                "the broker has the clock of the machine: start it with test_clock=True"
            )
        self.clock.advance(seconds)
        scheduled = self._started.features.scheduled
        deadline = self.clock.monotonic() + _SETTLED_WITHIN_S
        while scheduled.is_late and self.clock.monotonic() < deadline:
            await sleep(_SETTLED_POLL_S)
        return {"ahead_s": self.clock.ahead_s, "is_late": scheduled.is_late}


def _number(request: Request, name: str, high: float = float("inf")) -> float:
    value = request[name]
    if type(value) not in (int, float) or not 0 < value <= high:
        limit = f" and at most {high:g}" if high < float("inf") else ""
        raise InvalidArgument(f"{name}={value!r:.40}: give a number above 0{limit}")
    return float(value)


def _count(request: Request, name: str) -> int:
    value = request[name]
    if type(value) is not int or not 1 <= value <= _COUNT_MAX:
        raise InvalidArgument(f"{name}={value!r:.40}: give a whole number from 1 to {_COUNT_MAX}")
    return value
