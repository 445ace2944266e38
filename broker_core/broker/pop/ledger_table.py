"""Every pop ledger of a broker, by group, topic and queue, and the deadlines of all leases.

Owned by the event loop. A ledger is valid as long as the offset table has what the ledger committed
there. When the offset was changed otherwise (a reset, a clone, a deleted topic, a member that
pulls), the ledger is discarded and a new one begins at the offset of the table. A ledger with
nothing in flight equals its entry in the table and is dropped after a while.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

from broker_core.broker.pop.ledger import AckOutcome, Lease, LeaseState, PopLedger
from broker_core.broker.tables.offset_table import OffsetKey, OffsetTable
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX
from broker_core.runtime.clock import Clock

IDLE_MS: Final = 60_000
# In all queues; each takes about 150 bytes.
IN_FLIGHT_MAX: Final = 2_000_000

# Readable offsets [min, max) of a queue; (0, 0) when there is none: `MessageStore.offsets`.
QueueOffsets = Callable[[str, int], tuple[int, int]]


class DueLease(NamedTuple):
    """An expired lease."""

    key: OffsetKey
    ledger: PopLedger
    lease: Lease


class PopLedgers:
    """`queue_limit` is the maximum of messages in flight per group and queue."""

    def __init__(
        self,
        offsets: OffsetTable,
        clock: Clock,
        *,
        queue_offsets: QueueOffsets,
        queue_limit: int = 10_000,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self._offsets = offsets
        self._clock = clock
        self._queue_offsets = queue_offsets
        self._queue_limit = queue_limit
        self._in_flight_max = in_flight_max
        self._ledgers: dict[OffsetKey, PopLedger] = {}
        self._in_flight = 0
        self._deadlines: list[tuple[float, int, DueLease]] = []
        self._numbers = count()
        offsets.on_reset(self._moved)

    def __len__(self) -> int:
        return len(self._ledgers)

    @property
    def in_flight_count(self) -> int:
        """Number of unacknowledged messages."""
        return self._in_flight

    # Queries

    def find(self, key: OffsetKey) -> PopLedger | None:
        """The valid ledger of a queue; None without one."""
        ledger = self._ledgers.get(key)
        if ledger is None:
            return None
        is_reset = self._offsets.has_resets and self._offsets.obey_reset(*key) is not None
        if is_reset or self._offsets.query(*key) != ledger.committed:
            self._moved(key)
            return self._ledgers.get(key)
        return ledger

    def open(self, key: OffsetKey, *, from_end: bool = False) -> PopLedger:
        """The ledger of a queue; a new group begins at the start, or with `from_end` at the end.

        As with pulls, a new group always gets all of a queue of which nothing was ever deleted. The
        offset is stored at once, so that the group begins there after a restart as well.
        """
        ledger = self.find(key) or self._opened(key, from_end)
        ledger.used_at = self._clock.monotonic()
        return ledger

    def _opened(self, key: OffsetKey, from_end: bool) -> PopLedger:
        """A new ledger of a queue."""
        moved = self._offsets.has_resets and self._offsets.obey_reset(*key) is not None
        stored = self._offsets.query(*key)
        if stored is None:
            stored = self._first_offset(key, from_end)
            # Reading dispatches what was appended, and a held pop may have taken it meanwhile.
            found = self.find(key)
            if found is not None:
                return found
            self._offsets.commit(*key, stored)
        ledger = self._ledgers[key] = self._new_ledger(stored, is_moved=moved)
        return ledger

    def known(self, key: OffsetKey) -> PopLedger | None:
        """The ledger of a queue in which the group has an offset; None without one."""
        if self._offsets.query(*key) is None:
            return self.find(key)
        return self.open(key)

    def room(self, ledger: PopLedger) -> int:
        """How many more messages of a queue may be popped."""
        here = self._queue_limit - ledger.in_flight_count
        return max(min(here, self._in_flight_max - self._in_flight), 0)

    def next_of(self, key: OffsetKey) -> int | None:
        """The next offset to pop; None without a ledger."""
        ledger = self.find(key)
        return None if ledger is None else ledger.next_offset

    # Changes

    def take(
        self,
        key: OffsetKey,
        ledger: PopLedger,
        lease: Lease,
        offsets: Sequence[int],
        next_offset: int,
    ) -> None:
        """Deliver new messages until the deadline of their lease."""
        ledger.take(lease, offsets, next_offset)
        self._in_flight += len(offsets)
        self._watch(key, ledger, lease)
        self.settle(key, ledger)

    def take_again(
        self, key: OffsetKey, ledger: PopLedger, lease: Lease, offsets: Sequence[int]
    ) -> None:
        """Redeliver messages that the queue kept."""
        ledger.take_again(lease, offsets)
        self._watch(key, ledger, lease)

    def acknowledge(
        self, key: OffsetKey, ledger: PopLedger, offset: int, pop_time_ms: int
    ) -> AckOutcome:
        outcome = ledger.acknowledge(offset, pop_time_ms)
        if outcome is AckOutcome.DONE:
            self._in_flight -= 1
            self.settle(key, ledger)
        return outcome

    def change(
        self, key: OffsetKey, ledger: PopLedger, offset: int, pop_time_ms: int, invisible_ms: int
    ) -> Lease | None:
        """Change the invisible time of one message; None when the handle is not valid."""
        before = ledger.lease_of(offset)
        if before is None:
            return None
        lease = Lease(
            max(self._clock.wall_ms(), pop_time_ms + 1),
            self._clock.monotonic() + invisible_ms / 1000,
            is_order=before.is_order,
            attempt_id=before.attempt_id,
        )
        if not ledger.change(offset, pop_time_ms, lease):
            return None
        self._watch(key, ledger, lease)
        return lease

    def done(self, key: OffsetKey, ledger: PopLedger, offset: int) -> None:
        """Mark a message as moved or deleted."""
        if self._ledgers.get(key) is not ledger:
            return
        before = ledger.in_flight_count
        ledger.done(offset)
        self._in_flight -= before - ledger.in_flight_count
        self.settle(key, ledger)

    def forget_before(self, key: OffsetKey, ledger: PopLedger, offset: int) -> None:
        """Retention has removed messages."""
        before = ledger.in_flight_count
        ledger.forget_before(offset)
        ledger.skip_to(offset)
        self._in_flight -= before - ledger.in_flight_count
        self.settle(key, ledger)

    def settle(self, key: OffsetKey, ledger: PopLedger) -> None:
        """Store the progress of the group."""
        low = ledger.low
        if low > ledger.committed and self.find(key) is ledger and self._offsets.commit(*key, low):
            ledger.committed = low

    # Deadlines

    @property
    def next_deadline(self) -> float | None:
        """The earliest deadline, on the monotonic clock."""
        self._drop_ended()
        return self._deadlines[0][0] if self._deadlines else None

    def due(self, count_max: int) -> list[DueLease]:
        """Expired leases, earliest first. Each is returned once, unless `again` names it."""
        now = self._clock.monotonic()
        found: list[DueLease] = []
        self._drop_ended()
        while self._deadlines and self._deadlines[0][0] <= now and len(found) < count_max:
            due = heapq.heappop(self._deadlines)[2]
            if self.find(due.key) is due.ledger:
                due.lease.state = LeaseState.MOVING
                found.append(due)
            self._drop_ended()
        return found

    def again(self, due: DueLease, wait_ms: float) -> None:
        """Return a lease again later: its messages are not moved yet."""
        due.lease.deadline = self._clock.monotonic() + wait_ms / 1000
        self._watch(due.key, due.ledger, due.lease)

    def drop_idle(self) -> None:
        """Drop ledgers that have been idle for a while."""
        before = self._clock.monotonic() - IDLE_MS / 1000
        for key in [
            key
            for key, ledger in self._ledgers.items()
            if ledger.used_at <= before and ledger.is_idle
        ]:
            del self._ledgers[key]

    def _first_offset(self, key: OffsetKey, from_end: bool) -> int:
        _, topic, queue_id = key
        low, end = self._queue_offsets(topic, queue_id)
        if topic.startswith(RETRY_TOPIC_PREFIX) or not from_end:
            return low
        return 0 if low == 0 else end

    def _moved(self, key: OffsetKey) -> None:
        """Discard a ledger whose offset was changed otherwise, with its leases."""
        ledger = self._ledgers.pop(key, None)
        if ledger is None:
            return
        self._in_flight -= ledger.in_flight_count
        ledger.abandon()
        stored = self._offsets.query(*key)
        if stored is not None:
            self._ledgers[key] = self._new_ledger(stored, is_moved=True)

    def _new_ledger(self, stored: int, *, is_moved: bool) -> PopLedger:
        return PopLedger(
            stored,
            accepts_from_ms=self._clock.wall_ms() if is_moved else 0,
            used_at=self._clock.monotonic(),
        )

    def _watch(self, key: OffsetKey, ledger: PopLedger, lease: Lease) -> None:
        if lease.left:
            due = DueLease(key, ledger, lease)
            heapq.heappush(self._deadlines, (lease.deadline, next(self._numbers), due))
        if len(self._deadlines) > 64 + 2 * self._in_flight:
            # Most leases end long before their deadline.
            self._deadlines = [entry for entry in self._deadlines if _is_live(entry)]
            heapq.heapify(self._deadlines)

    def _drop_ended(self) -> None:
        while self._deadlines and not _is_live(self._deadlines[0]):
            heapq.heappop(self._deadlines)

    def __iter__(self) -> Iterator[tuple[OffsetKey, PopLedger]]:
        return iter(list(self._ledgers.items()))


def _is_live(entry: tuple[float, int, DueLease]) -> bool:
    deadline, _, due = entry
    return due.lease.left > 0 and due.lease.deadline == deadline
