"""Pops, acknowledgements, expiries, crashes and resets in any order, against what they promise.

Nothing is lost: a message that was never acknowledged can be popped again. Nothing is given to two
consumers at a time while the broker lives. The offset that survives never passes a message that is
neither acknowledged nor stored again elsewhere.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_core.broker.pop.ledger import AckOutcome, Lease, PopLedger
from broker_core.broker.pop.ledger_table import PopLedgers
from broker_core.broker.tables.offset_table import OFFSETS_FILE, OffsetTable
from broker_core.storage.files.json_table import JsonTable
from tests.fakes.manual_clock import ManualClock
from tests.store.small_store import new_disk

KEY = ("G", "T", 0)
END = 60
ALL = frozenset(range(END))
INVISIBLE_MS = 1000


class PopModel(RuleBasedStateMachine):
    """One group in one queue that has all its messages from the start."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = new_disk()
        self.clock = ManualClock()
        self.acknowledged: set[int] = set()
        self.moved: set[int] = set()
        # Offset -> (handle, end of its invisible time), of this run of the broker.
        self.held: dict[int, tuple[int, float]] = {}
        self.handles: list[tuple[int, int]] = []
        self.start()

    def start(self) -> None:
        table = JsonTable(self.disk, OFFSETS_FILE)
        self.offsets = OffsetTable(table, self.clock, end_offset=lambda *_: END)
        self.ledgers = PopLedgers(
            self.offsets, self.clock, queue_offsets=lambda *_: (0, END), queue_limit=20
        )

    @rule(count=st.integers(1, 8), wanted=st.integers(1, 3))
    def pop(self, count: int, wanted: int) -> None:
        """Some consumer asks; its filter may leave messages out, which are done then."""
        ledger = self.ledgers.open(KEY)
        now = self.clock.monotonic()
        time_ms = ledger.pop_time_after(self.clock.wall_ms())
        lease = Lease(time_ms, now + INVISIBLE_MS / 1000)
        count = min(count, self.ledgers.room(ledger))
        again = ledger.given_again("", count)
        if again:
            self.ledgers.take_again(KEY, ledger, lease, again)
            found = again
        else:
            until = min(ledger.next_offset + count, END)
            looked_at = range(ledger.next_offset, until)
            found = ledger.unacknowledged(o for o in looked_at if o % wanted == 0)
            self.acknowledged |= {o for o in looked_at if o % wanted}
            self.ledgers.take(KEY, ledger, lease, found, until)
        for offset in found:
            assert offset not in self.acknowledged
            assert offset not in self.moved
            if offset in self.held:
                assert self.held[offset][1] <= now, f"{offset} was given to two consumers"
            self.held[offset] = (time_ms, lease.deadline)
            self.handles.append((offset, time_ms))

    @rule(data=st.data())
    def acknowledge(self, data: Any) -> None:
        """Any handle that was ever given out, from before a crash as well."""
        if not self.handles:
            return
        offset, time_ms = data.draw(st.sampled_from(self.handles))
        ledger = self.ledgers.open(KEY)
        outcome = self.ledgers.acknowledge(KEY, ledger, offset, time_ms)
        if outcome is not AckOutcome.STALE:
            if outcome is not AckOutcome.DONE_BEFORE:
                self.acknowledged.add(offset)
            assert offset in self.acknowledged | self.moved
        if outcome is AckOutcome.DONE:
            self.held.pop(offset, None)

    @rule(data=st.data(), ms=st.sampled_from([0, 100, 5000]))
    def change(self, data: Any, ms: int) -> None:
        if not self.held:
            return
        offset = data.draw(st.sampled_from(sorted(self.held)))
        time_ms, until = self.held[offset]
        ledger = self.ledgers.open(KEY)
        lease = self.ledgers.change(KEY, ledger, offset, time_ms, ms)
        if lease is None:
            assert until <= self.clock.monotonic() or offset in self.acknowledged | self.moved
            return
        assert lease.pop_time_ms > time_ms
        assert self.ledgers.acknowledge(KEY, ledger, offset, time_ms) is AckOutcome.STALE
        self.held[offset] = (lease.pop_time_ms, lease.deadline)
        self.handles.append((offset, lease.pop_time_ms))

    @rule(ms=st.sampled_from([1, 500, 1000, 10_000]), jump_ms=st.sampled_from([0, 0, -90_000]))
    def time_passes(self, ms: int, jump_ms: int) -> None:
        self.clock.advance(ms)
        self.clock.set_wall(self.clock.wall_ms() + jump_ms)

    @rule(is_full=st.booleans())
    def move_due(self, is_full: bool) -> None:
        """Copies are stored in the retry topic, or the queue keeps them."""
        for due in self.ledgers.due(8):
            offsets = due.ledger.offsets_of(due.lease)
            if is_full:
                due.ledger.keep(offsets)
                continue
            for offset in offsets:
                assert self.held[offset][1] <= self.clock.monotonic()
                self.moved.add(offset)
                self.held.pop(offset)
                self.ledgers.done(due.key, due.ledger, offset)

    @rule()
    def save(self) -> None:
        self.offsets.save()

    @rule()
    def crash(self) -> None:
        """What was acknowledged above the offset on disk comes again."""
        self.held.clear()
        self.start()
        stored = self.offsets.query(*KEY) or 0
        assert set(range(stored)) <= self.acknowledged | self.moved
        self.acknowledged &= set(range(stored))
        self.moved &= set(range(stored))

    @rule()
    def rest(self) -> None:
        self.ledgers.drop_idle()

    @rule(to=st.integers(0, END))
    def reset(self, to: int) -> None:
        ledger = self.ledgers.open(KEY)
        self.offsets.reset(*KEY, to)
        self.offsets.save()
        self.clock.advance(1)
        self.held.clear()
        self.handles.clear()
        self.acknowledged = set(range(to))
        self.moved.clear()
        assert self.ledgers.open(KEY) is not ledger

    @invariant()
    def the_stored_offset_passes_nothing_that_is_open(self) -> None:
        stored = self.offsets.query(*KEY)
        assert set(range(stored or 0)) <= self.acknowledged | self.moved

    @invariant()
    def what_is_in_flight_is_counted(self) -> None:
        assert self.ledgers.in_flight_count <= 20

    def teardown(self) -> None:
        """The remaining clients get everything that is left."""
        for _ in range(200):
            self.clock.advance(60_000)
            self.move_due(is_full=False)
            self.pop(count=8, wanted=1)
            for offset, (time_ms, _) in list(self.held.items()):
                ledger = self.ledgers.open(KEY)
                if self.ledgers.acknowledge(KEY, ledger, offset, time_ms) is AckOutcome.DONE:
                    self.acknowledged.add(offset)
                    del self.held[offset]
            if self.acknowledged | self.moved == ALL and self.offsets.query(*KEY) == END:
                break
        assert self.acknowledged | self.moved == ALL
        assert self.offsets.query(*KEY) == END
        assert self.ledgers.in_flight_count == 0


PopModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPopModel = PopModel.TestCase


def test_a_pop_that_is_served_while_its_queue_is_opened_keeps_its_messages() -> None:
    """Asking for the offsets of a queue dispatches messages, which serves held pops."""
    clock = ManualClock()
    offsets = OffsetTable(JsonTable(new_disk(), OFFSETS_FILE), clock, end_offset=lambda *_: END)
    served: list[PopLedger] = []

    def offsets_after_dispatch(*_: object) -> tuple[int, int]:
        if not served:
            served.append(PopLedger(0, accepts_from_ms=0, used_at=0))
            served[0] = ledgers.open(KEY)
            ledgers.take(KEY, served[0], Lease(1, 60), [0, 1], 2)
        return 0, END

    ledgers = PopLedgers(offsets, clock, queue_offsets=offsets_after_dispatch)
    assert ledgers.open(KEY) is served[0]
    assert ledgers.open(KEY).next_offset == 2
    for offset in (0, 1):
        outcome = ledgers.acknowledge(KEY, ledgers.open(KEY), offset, 1)
        assert outcome is AckOutcome.DONE
    assert ledgers.in_flight_count == 0
