"""Total limits of a server: connections, requests under way, and bytes.

Exceeding a count is refused; exceeding the bytes pauses reading. Requests are handled while the
bytes under way are within the limit. More is read while these plus the bytes of partial frames are
within it; beyond it one connection at a time (in total and per host) may read on, so that partial
frames cannot deadlock. Unauthenticated peers share a much smaller budget in the same way.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker_core.config import RemotingLimits
from broker_core.remoting.limits.held_requests import HeldRequests, HeldShare
from broker_core.runtime.peer_host import counted_host, is_loopback_host


class WaitsForBudget(Protocol):
    """A connection that paused because of a limit."""

    def budget_freed(self) -> None:
        """Check the limits again."""


class Share:
    """Bytes of a host or of all, and the one connection that may read beyond the limit."""

    __slots__ = ("arrived_size", "reader", "work_size")

    def __init__(self) -> None:
        self.work_size = 0
        self.arrived_size = 0
        self.reader: WaitsForBudget | None = None

    def may_read(self, who: WaitsForBudget, size_max: int) -> bool:
        """Whether `who` may read on; beyond the limit only the first to ask."""
        if self.work_size + self.arrived_size <= size_max or self.reader is who:
            return True
        if self.reader is None:
            self.reader = who
        return self.reader is who


class HostLoad(Share):
    """The load of all connections of one address, or of one IPv6 network."""

    __slots__ = ("connections", "held", "host", "is_local", "unauthenticated")

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host
        self.is_local = is_loopback_host(host)
        self.connections = 0
        self.unauthenticated = Share()
        # Unrelated peers on this machine share one address: no limit per host.
        self.held = None if self.is_local else HeldShare()


class RequestBudget:
    """Shared by all connections of a server, or of a client."""

    def __init__(self, limits: RemotingLimits) -> None:
        self.limits = limits
        self.connections = 0
        self.requests = 0
        self.held = HeldRequests(limits)
        self._all = Share()
        self._unauthenticated = Share()
        self._hosts: dict[str, HostLoad] = {}
        self._waiting: dict[WaitsForBudget, None] = {}
        self._wake_scheduled = False
        self._idle: asyncio.Future[None] | None = None

    def admit(self, host: str) -> HostLoad | None:
        """Count one more connection; None when a limit, of its host or in total, is reached."""
        host = counted_host(host)
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

    @property
    def size(self) -> int:
        """Bytes of requests under way and of partial frames."""
        return self._all.work_size + self._all.arrived_size

    def may_work(self, load: HostLoad) -> bool:
        """Whether another request of this host may be handled."""
        limits = self.limits
        return self._all.work_size <= limits.in_flight_size_max and (
            load.is_local or load.work_size <= limits.ip_in_flight_size_max
        )

    def may_read_unauthenticated(self, load: HostLoad, who: WaitsForBudget) -> bool:
        """Whether an unauthenticated connection may read on."""
        limits = self.limits
        return (
            load.is_local or load.unauthenticated.may_read(who, limits.frame_size_max)
        ) and self._unauthenticated.may_read(who, limits.unauthenticated_size_max)

    def may_read(self, load: HostLoad, who: WaitsForBudget) -> bool:
        """Whether a connection of this host may read on."""
        limits = self.limits
        return (
            load.is_local or load.may_read(who, limits.ip_in_flight_size_max)
        ) and self._all.may_read(who, limits.in_flight_size_max)

    def has_read(self, load: HostLoad, who: WaitsForBudget) -> None:
        """A connection has no partial frame left; another one may read beyond the limit."""
        self._pass_on(load, who)
        self._pass_on(self._all, who)

    def has_read_unauthenticated(self, load: HostLoad, who: WaitsForBudget) -> None:
        """`has_read` for an unauthenticated connection."""
        self._pass_on(load.unauthenticated, who)
        self._pass_on(self._unauthenticated, who)

    def begin_request(self, load: HostLoad, cost: int, count: int = 1) -> None:
        """`count` more requests are under way."""
        self.requests += count
        self._all.work_size += cost
        load.work_size += cost

    def end_request(self, load: HostLoad, cost: int, count: int = 1) -> None:
        """`count` requests have ended."""
        self.requests -= count
        self._all.work_size -= cost
        load.work_size -= cost
        self._freed(load)
        self.note_idle()

    def change_arrived(self, load: HostLoad, size: int) -> None:
        """Change the number of bytes in partial frames."""
        self._all.arrived_size += size
        load.arrived_size += size
        if size < 0:
            self._freed(load)

    def change_unauthenticated(self, load: HostLoad, size: int) -> None:
        """Bytes of partial frames of unauthenticated peers."""
        self._unauthenticated.arrived_size += size
        load.unauthenticated.arrived_size += size

    def note_idle(self) -> None:
        """A request has ended or is no longer held: wakes `until_idle` after the last one."""
        is_idle = not self.requests and not self.held.count
        if is_idle and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def until_idle(self) -> None:
        """Return when no request is under way or held."""
        if self.requests or self.held.count:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def wait(self, waiting: WaitsForBudget) -> None:
        """Call `waiting.budget_freed` when something is released."""
        self._waiting[waiting] = None

    def forget(self, waiting: WaitsForBudget) -> None:
        """Undo `wait`."""
        self._waiting.pop(waiting, None)

    def _freed(self, load: HostLoad) -> None:
        if not load.connections:
            self._forget_unused(load)
        if self._waiting:
            self._wake_soon()

    def _pass_on(self, share: Share, who: WaitsForBudget) -> None:
        if share.reader is who:
            share.reader = None
            self._wake_soon()

    def _wake_soon(self) -> None:
        if self._waiting and not self._wake_scheduled:
            self._wake_scheduled = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._wake_scheduled = False
        waiting, self._waiting = self._waiting, {}
        for one in waiting:
            one.budget_freed()

    def _forget_unused(self, load: HostLoad) -> None:
        # The host may have come back meanwhile, with a load of its own.
        is_unused = not (load.connections or load.work_size or load.arrived_size)
        if is_unused and self._hosts.get(load.host) is load:
            del self._hosts[load.host]
