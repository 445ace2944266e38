"""Limits of held requests, such as pulls that wait for a message.

Held requests use memory but no processor time, so they have their own limits. A connection, a host
and an account may each hold at most as many requests and bytes as are still free, so that one peer
always leaves room for others. Peers on this machine do not count towards their host.
"""

from __future__ import annotations

from broker_core.config import RemotingLimits


class HeldShare:
    """Number and bytes of the requests that one connection, host or account holds."""

    __slots__ = ("count", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0

    def has_room(self, cost: int, count_max: int, size_max: int) -> bool:
        """Whether one more request of this cost fits both limits."""
        return self.count < count_max and self.size + cost <= size_max

    def change(self, count: int, size: int) -> None:
        """Add to both counts."""
        self.count += count
        self.size += size


class HeldRequests(HeldShare):
    """All held requests of a server; `count` and `size` are the totals."""

    __slots__ = ("_accounts", "_limits")

    def __init__(self, limits: RemotingLimits) -> None:
        super().__init__()
        self._limits = limits
        self._accounts: dict[str, HeldShare] = {}

    def begin(self, cost: int, connection: HeldShare, host: HeldShare | None, account: str) -> bool:
        """Hold one more; False when a share is used up. `account` is "" where there are none."""
        limits = self._limits
        free = limits.held_requests_max - self.count
        free_size = limits.held_size_max - self.size
        size_max = min(free_size, limits.connection_in_flight_size_max)
        if not connection.has_room(cost, min(free, limits.connection_requests_max), size_max):
            return False
        size_max = min(free_size, limits.ip_in_flight_size_max)
        if host is not None and not host.has_room(cost, free, size_max):
            return False
        if account:
            share = self._accounts.get(account) or HeldShare()
            if not share.has_room(cost, free, free_size):
                return False
            self._accounts[account] = share
        self._change(1, cost, connection, host, account)
        return True

    def end(self, cost: int, connection: HeldShare, host: HeldShare | None, account: str) -> None:
        """A request that `begin` accepted has ended."""
        self._change(-1, -cost, connection, host, account)
        if account and not self._accounts[account].count:
            del self._accounts[account]

    def _change(
        self, count: int, size: int, connection: HeldShare, host: HeldShare | None, account: str
    ) -> None:
        self.change(count, size)
        connection.change(count, size)
        if host is not None:
            host.change(count, size)
        if account:
            self._accounts[account].change(count, size)
