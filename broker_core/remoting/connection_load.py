"""What one connection takes from the budget: requests being worked on and frames half arrived.

A request is counted from its parsing to its answer. It is ended by the `send` of a response with
its id, or by whoever took the duty over with `unhold`. What still waits for a `send` when the
connection closes is ended then; work that someone still does stays counted until it is done.
"""

from __future__ import annotations

from broker_core.remoting.request_budget import HostLoad, RequestBudget

# A small request costs more memory than its bytes say.
REQUEST_OVERHEAD = 1024


class ConnectionLoad:
    """Counts for one connection, and passes on to its host and to all."""

    __slots__ = ("_budget", "_host", "_partial_size", "_unanswered", "requests", "size")

    def __init__(self, budget: RequestBudget, host: HostLoad) -> None:
        self._budget = budget
        self._host = host
        # Request id → costs; a peer may use an id twice.
        self._unanswered: dict[int, list[int]] = {}
        self._partial_size = 0
        self.requests = 0
        self.size = 0

    @property
    def is_over(self) -> bool:
        """Whether the peer should wait before it may ask for more."""
        limits = self._budget.limits
        return self.size > limits.connection_in_flight_size_max or self._budget.is_over(self._host)

    def begin(self, frame_size: int) -> int:
        """One more request; returns its cost, which `end` gives back."""
        cost = frame_size + REQUEST_OVERHEAD
        self._budget.begin_request(self._host, cost)
        self.requests += 1
        self.size += cost
        return cost

    def end(self, cost: int) -> None:
        """A request is over."""
        self.requests -= 1
        self.size -= cost
        self._budget.end_request(self._host, cost)

    def hold(self, opaque: int, cost: int) -> None:
        """The request ends with the `send` of its answer."""
        self._unanswered.setdefault(opaque, []).append(cost)

    def unhold(self, opaque: int) -> int | None:
        """The caller ends the request now: its cost, or None when it has been answered."""
        costs = self._unanswered.get(opaque)
        if costs is None:
            return None
        cost = costs.pop()
        if not costs:
            del self._unanswered[opaque]
        return cost

    def answered(self, opaque: int) -> None:
        """A response with this id is sent."""
        cost = self.unhold(opaque)
        if cost is not None:
            self.end(cost)

    def note_partial(self, size: int) -> None:
        """Bytes that have arrived and are no request yet."""
        if size != self._partial_size:
            self._budget.change(self._host, size - self._partial_size)
            self._partial_size = size

    def close(self) -> None:
        """The connection is gone."""
        self.note_partial(0)
        unanswered, self._unanswered = self._unanswered, {}
        for costs in unanswered.values():
            for cost in costs:
                self.end(cost)
        self._budget.leave(self._host)
