"""Messages of one queue that a group has popped and not acknowledged. Pure: no clock, no disk.

    committed ... low            next            end of the queue
    ──────────────┼──────────────┼────────────────┤
      done        │ in flight or │ not popped yet
                  │ done         │

Every offset below `next_offset` is either in flight or done: acknowledged, moved to the retry
topic, or filtered out. So only the offsets in flight are stored, and `low`, the first of them, is
the progress of the group. The offset table keeps it, and nothing else must survive: after a crash
everything above it is popped again.

A lease holds the messages of one pop until its deadline. Changing the invisible time of a message
moves it to a lease of its own. The pop time of the lease is part of the handle and tells deliveries
of a message apart: a handle is valid as long as its lease has the message.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final

# Acknowledgements above `next_offset`: handles from before a restart.
EARLY_MAX: Final = 10_000


class LeaseState(enum.Enum):
    """State of the messages of a lease."""

    HELD = "held"
    """Invisible to other consumers until the deadline."""
    MOVING = "moving"
    """Expired; copies for the retry topic are being stored."""
    DUE = "due"
    """Expired; the queue itself delivers the messages again."""


class AckOutcome(enum.Enum):
    """Result of an acknowledgement."""

    DONE = "done"
    DONE_BEFORE = "done before"
    REMEMBERED = "remembered"
    STALE = "stale"
    """The message belongs to a later delivery."""


class Lease:
    """The messages that one pop took from one queue."""

    __slots__ = (
        "attempt_id", "copies", "deadline", "is_order", "left", "offsets", "pop_time_ms", "state",
    )  # fmt: skip

    def __init__(
        self, pop_time_ms: int, deadline: float, *, is_order: bool = False, attempt_id: str = ""
    ) -> None:
        self.pop_time_ms = pop_time_ms
        self.deadline = deadline
        self.is_order = is_order
        self.attempt_id = attempt_id
        self.state = LeaseState.HELD
        self.offsets: Sequence[int] = ()
        """Offsets at the time of the pop."""
        self.left = 0
        """Number of offsets that it still has."""
        self.copies: dict[int, Any] = {}
        """By offset: copies for the retry topic that are stored and not durable yet."""


class PopLedger:
    """One group in one queue. `committed` is its offset in the offset table.

    Handles with a pop time before `accepts_from_ms` are invalid: the offset of the group was reset
    since.
    """

    __slots__ = (
        "_due_count", "_early", "_in_flight", "_order_count", "_tries", "accepts_from_ms",
        "committed", "last_pop_ms", "next_offset", "used_at",
    )  # fmt: skip

    def __init__(self, committed: int, *, accepts_from_ms: int = 0, used_at: float = 0.0) -> None:
        self.committed = committed
        self.next_offset = committed
        self.accepts_from_ms = accepts_from_ms
        self.used_at = used_at
        self.last_pop_ms = 0
        # In queue order: pops only go forward, and a new lease keeps the place.
        self._in_flight: OrderedDict[int, Lease] = OrderedDict()
        # Number of them to deliver again, and number popped in order.
        self._due_count = 0
        self._order_count = 0
        self._early: set[int] = set()
        # Earlier deliveries of messages that do not carry the count.
        self._tries: dict[int, int] = {}

    # Queries

    @property
    def low(self) -> int:
        """The first offset that is not done."""
        return next(iter(self._in_flight), self.next_offset)

    @property
    def in_flight_count(self) -> int:
        """Number of unacknowledged messages."""
        return len(self._in_flight)

    @property
    def is_idle(self) -> bool:
        """Whether the committed offset is the whole state."""
        return not self._in_flight and not self._early and self.committed == self.next_offset

    def lease_of(self, offset: int) -> Lease | None:
        """The lease that has a message."""
        return self._in_flight.get(offset)

    def tries_of(self, offset: int) -> int:
        """How often the queue itself delivered a message before."""
        return self._tries.get(offset, 0)

    def is_locked(self, attempt_id: str) -> bool:
        """Whether an orderly pop has to wait: another consumer has messages of this queue.

        A consumer that lost the answer to a pop retries with the same attempt id.
        """
        return any(
            lease.state is not LeaseState.DUE
            and not (attempt_id and lease.attempt_id == attempt_id and lease.is_order)
            for lease in self._in_flight.values()
        )

    def given_again(self, attempt_id: str, count_max: int) -> list[int]:
        """Messages to redeliver before new ones, in order."""
        found: list[int] = []
        if not self._due_count and not (attempt_id and self._order_count):
            return found
        for offset, lease in self._in_flight.items():
            if len(found) == count_max:
                break
            is_same = bool(attempt_id) and lease.attempt_id == attempt_id and lease.is_order
            if lease.state is LeaseState.DUE or (is_same and lease.state is LeaseState.HELD):
                found.append(offset)
        return found

    def pop_time_after(self, wall_ms: int) -> int:
        """A pop time that no handle of a redelivered message has."""
        return max(wall_ms, self.last_pop_ms + 1)

    # Popping

    def unacknowledged(self, offsets: Iterable[int]) -> list[int]:
        """Those of the offsets that were not acknowledged before this pop."""
        return [offset for offset in offsets if offset not in self._early]

    def take(self, lease: Lease, offsets: Sequence[int], next_offset: int) -> None:
        """Deliver `offsets`; other offsets before `next_offset` are done."""
        assert next_offset >= self.next_offset
        for offset in offsets:
            assert self.next_offset <= offset < next_offset
            self._in_flight[offset] = lease
        _give(lease, offsets)
        self._order_count += len(offsets) if lease.is_order else 0
        self._advance(next_offset)
        self.last_pop_ms = max(self.last_pop_ms, lease.pop_time_ms)

    def take_again(self, lease: Lease, offsets: Sequence[int]) -> None:
        """Redeliver messages that are in flight here."""
        for offset in offsets:
            if self._in_flight[offset].state is LeaseState.DUE:
                self._tries[offset] = self._tries.get(offset, 0) + 1
            self._hand_over(offset, lease)
        _give(lease, offsets)
        self.last_pop_ms = max(self.last_pop_ms, lease.pop_time_ms)

    def keep(self, offsets: Sequence[int]) -> None:
        """Mark expired messages for redelivery by the queue. Until then their handles are valid."""
        for offset in offsets:
            before = self._in_flight[offset]
            lease = Lease(before.pop_time_ms, before.deadline, is_order=before.is_order)
            lease.state = LeaseState.DUE
            self._hand_over(offset, lease)
            _give(lease, (offset,))

    def skip_to(self, offset: int) -> None:
        """Skip to `offset`: everything before is filtered out or deleted by retention."""
        if offset > self.next_offset:
            self._advance(offset)

    def forget_before(self, offset: int) -> None:
        """Drop messages below `offset`, which retention has deleted."""
        while self._in_flight and (first := next(iter(self._in_flight))) < offset:
            self.done(first)

    # Ending

    def acknowledge(self, offset: int, pop_time_ms: int) -> AckOutcome:
        """Acknowledge a message by its handle."""
        lease = self._in_flight.get(offset)
        if lease is not None:
            if lease.pop_time_ms != pop_time_ms:
                return AckOutcome.STALE
            self.done(offset)
            return AckOutcome.DONE
        if offset < self.next_offset:
            return AckOutcome.DONE_BEFORE
        if pop_time_ms < self.accepts_from_ms or len(self._early) >= EARLY_MAX:
            return AckOutcome.STALE
        self._early.add(offset)
        return AckOutcome.REMEMBERED

    def done(self, offset: int) -> None:
        """Mark a message as done."""
        lease = self._in_flight.pop(offset, None)
        if lease is not None:
            self._let_go(lease)
            self._tries.pop(offset, None)

    def change(self, offset: int, pop_time_ms: int, lease: Lease) -> bool:
        """Change the deadline of one message; False when the handle is not valid any more."""
        before = self._in_flight.get(offset)
        if (
            before is None
            or before.pop_time_ms != pop_time_ms
            or before.state is not LeaseState.HELD
        ):
            return False
        self._hand_over(offset, lease)
        _give(lease, (offset,))
        self.last_pop_ms = max(self.last_pop_ms, lease.pop_time_ms)
        return True

    def offsets_of(self, lease: Lease) -> list[int]:
        """The offsets that a lease still has, in order."""
        if not lease.left:
            return []
        return [offset for offset in lease.offsets if self._in_flight.get(offset) is lease]

    def abandon(self) -> None:
        """Empty a ledger that is discarded."""
        for lease in self._in_flight.values():
            lease.left = 0

    def _hand_over(self, offset: int, lease: Lease) -> None:
        """Move an offset to another lease, which keeps its place in the order."""
        self._let_go(self._in_flight[offset])
        self._in_flight[offset] = lease
        self._due_count += lease.state is LeaseState.DUE
        self._order_count += lease.is_order

    def _let_go(self, lease: Lease) -> None:
        lease.left -= 1
        self._due_count -= lease.state is LeaseState.DUE
        self._order_count -= lease.is_order

    def _advance(self, next_offset: int) -> None:
        self.next_offset = next_offset
        if self._early:
            self._early = {offset for offset in self._early if offset >= next_offset}


def _give(lease: Lease, offsets: Sequence[int]) -> None:
    assert not lease.offsets
    lease.offsets = tuple(offsets)
    lease.left = len(offsets)
