"""What all peers together may take: connections, requests being worked on, and their bytes.

Counts are refused, bytes wait: a peer over a byte limit is not read from until something ends. The
bytes of frames that are still arriving count too, or half frames would be free.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Protocol

from broker_core.config import RemotingLimits


class WaitsForBudget(Protocol):
    """Something that stopped because of a limit."""

    def budget_freed(self) -> None:
        """Look at the limits again."""


class HostLoad:
    """What all connections of one address take."""

    __slots__ = ("connections", "host", "is_local", "size")

    def __init__(self, host: str) -> None:
        self.host = host
        self.is_local = _is_local(host)
        self.connections = 0
        self.size = 0


class RequestBudget:
    """Shared by all connections of a server, or of a client."""

    def __init__(self, limits: RemotingLimits) -> None:
        self.limits = limits
        self.connections = 0
        self.requests = 0
        self.size = 0
        self._hosts: dict[str, HostLoad] = {}
        self._waiting: dict[WaitsForBudget, None] = {}
        self._wake_scheduled = False
        self._idle: asyncio.Future[None] | None = None

    def admit(self, host: str) -> HostLoad | None:
        """Count one more connection; None when its host or all hosts have enough."""
        load = self._hosts.get(host) or HostLoad(host)
        if self.connections >= self.limits.connections_max:
            return None
        if not load.is_local and load.connections >= self.limits.connections_per_ip_max:
            return None
        self._hosts[host] = load
        load.connections += 1
        self.connections += 1
        return load

    def leave(self, load: HostLoad) -> None:
        """One connection less."""
        load.connections -= 1
        self.connections -= 1
        self._forget_unused(load)

    def is_over(self, load: HostLoad) -> bool:
        """Whether connections of this host should wait."""
        limits = self.limits
        return self.size > limits.in_flight_size_max or (
            load.size > limits.ip_in_flight_size_max and not load.is_local
        )

    def begin_request(self, load: HostLoad, cost: int) -> None:
        """One more request is worked on."""
        self.requests += 1
        self.size += cost
        load.size += cost

    def end_request(self, load: HostLoad, cost: int) -> None:
        """One is done."""
        self.requests -= 1
        self.change(load, -cost)
        if not self.requests and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def change(self, load: HostLoad, size: int) -> None:
        """More bytes are held, or fewer; in that case those who wait look again."""
        self.size += size
        load.size += size
        if size < 0:
            if not load.connections:
                self._forget_unused(load)
            if self._waiting and not self._wake_scheduled:
                self._wake_scheduled = True
                asyncio.get_running_loop().call_soon(self._wake)

    async def until_idle(self) -> None:
        """Return when no request is worked on."""
        if self.requests:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def wait(self, waiting: WaitsForBudget) -> None:
        """Call `waiting.budget_freed` when something is released."""
        self._waiting[waiting] = None

    def forget(self, waiting: WaitsForBudget) -> None:
        """It does not wait any more."""
        self._waiting.pop(waiting, None)

    def _wake(self) -> None:
        self._wake_scheduled = False
        waiting, self._waiting = self._waiting, {}
        for one in waiting:
            one.budget_freed()

    def _forget_unused(self, load: HostLoad) -> None:
        # The host may have come back meanwhile, with a load of its own.
        if not load.connections and not load.size and self._hosts.get(load.host) is load:
            del self._hosts[load.host]


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # No address: a local socket.
        return True
