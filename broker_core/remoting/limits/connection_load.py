"""The share of one connection in the budget: requests under way and partial frames.

A request counts from its parsing to its answer. It ends with the `send` of a response with its id,
or with the caller of `unhold`. When the connection closes, requests that wait for a `send` end;
running work counts until it is done. A request that waits for a message counts as held from
`suspend` on.
"""

from __future__ import annotations

from broker_core.remoting.limits.held_requests import HeldShare
from broker_core.remoting.limits.request_budget import HostLoad, RequestBudget, WaitsForBudget

# Minimum cost: a small request takes more memory than its bytes.
REQUEST_OVERHEAD = 1024


class ConnectionLoad:
    """Counts of one connection, also added to those of its host and of all."""

    __slots__ = (
        "_arrived_size",
        "_budget",
        "_host",
        "_suspended",
        "_unanswered",
        "held",
        "is_unauthenticated",
        "requests",
        "size",
    )

    def __init__(self, budget: RequestBudget, host: HostLoad) -> None:
        self._budget = budget
        self._host = host
        # Request id → costs; a peer may use an id twice.
        self._unanswered: dict[int, list[int]] = {}
        # The same for held ones: cost and account.
        self._suspended: dict[int, list[tuple[int, str]]] = {}
        self._arrived_size = 0
        self.held = HeldShare()
        self.requests = 0
        self.size = 0
        # Whether the peer must authenticate and has not done so.
        self.is_unauthenticated = False

    @property
    def may_work(self) -> bool:
        """Whether another request of the peer may be handled."""
        limits = self._budget.limits
        return self.size <= limits.connection_in_flight_size_max and self._budget.may_work(
            self._host
        )

    def may_read(self, who: WaitsForBudget) -> bool:
        """Whether more input of the peer may be read."""
        budget = self._budget
        if (
            self.is_unauthenticated
            and self._arrived_size > budget.limits.unauthenticated_frame_size_max
        ):
            return budget.may_read_unauthenticated(self._host, who) and budget.may_read(
                self._host, who
            )
        return budget.may_read(self._host, who)

    def recognised(self, who: WaitsForBudget) -> None:
        """Count the peer as authenticated."""
        self._budget.change_unauthenticated(self._host, -self._arrived_size)
        self._budget.has_read_unauthenticated(self._host, who)
        self.is_unauthenticated = False

    def begin(self, frame_size: int) -> int:
        """Count one more request; returns its cost, which `end` releases."""
        cost = frame_size + REQUEST_OVERHEAD
        self._budget.begin_request(self._host, cost)
        self.requests += 1
        self.size += cost
        return cost

    def end(self, cost: int) -> None:
        """A request has ended."""
        self.requests -= 1
        self.size -= cost
        self._budget.end_request(self._host, cost)

    def begin_many(self, count: int, frames_size: int) -> int:
        """`begin` for requests that end together, with `end_many`; returns their cost."""
        cost = frames_size + count * REQUEST_OVERHEAD
        self._budget.begin_request(self._host, cost, count)
        self.requests += count
        self.size += cost
        return cost

    def end_many(self, count: int, cost: int) -> None:
        """Requests that began together have ended."""
        self.requests -= count
        self.size -= cost
        self._budget.end_request(self._host, cost, count)

    def hold(self, opaque: int, cost: int) -> None:
        """The request ends with the `send` of its answer."""
        self._unanswered.setdefault(opaque, []).append(cost)

    def unhold(self, opaque: int) -> int | None:
        """End the request now; returns its cost, or None when it was answered."""
        costs = self._unanswered.get(opaque)
        if costs is None:
            return None
        cost = costs.pop()
        if not costs:
            del self._unanswered[opaque]
        return cost

    def suspend(self, opaque: int, account: str = "") -> bool:
        """Hold the request until a message arrives; False when too many are held.

        A oneway request cannot be held: no answer would end it.
        """
        cost = self.unhold(opaque)
        if cost is None:
            return False
        if not self._budget.held.begin(cost, self.held, self._host.held, account):
            self.hold(opaque, cost)
            return False
        self._suspended.setdefault(opaque, []).append((cost, account))
        self.end(cost)
        return True

    def answered(self, opaque: int) -> None:
        """A response with this id was sent."""
        cost = self.unhold(opaque)
        if cost is not None:
            self.end(cost)
            return
        suspended = self._suspended.get(opaque)
        if suspended is not None:
            self._resume(*suspended.pop())
            if not suspended:
                del self._suspended[opaque]

    def _resume(self, cost: int, account: str) -> None:
        self._budget.held.end(cost, self.held, self._host.held, account)
        self._budget.note_idle()

    def note_arrived(self, size: int, who: WaitsForBudget) -> None:
        """Note the number of bytes that have arrived and are not a request yet."""
        if size != self._arrived_size:
            if self.is_unauthenticated:
                self._budget.change_unauthenticated(self._host, size - self._arrived_size)
            self._budget.change_arrived(self._host, size - self._arrived_size)
            self._arrived_size = size
        if not size:
            self._budget.has_read(self._host, who)
            if self.is_unauthenticated:
                self._budget.has_read_unauthenticated(self._host, who)

    def close(self, who: WaitsForBudget) -> None:
        """Release everything when the connection has ended."""
        self._budget.forget(who)
        self.note_arrived(0, who)
        unanswered, self._unanswered = self._unanswered, {}
        for costs in unanswered.values():
            for cost in costs:
                self.end(cost)
        suspended, self._suspended = self._suspended, {}
        for held in suspended.values():
            for one in held:
                self._resume(*one)
        self._budget.leave(self._host)
