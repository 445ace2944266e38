"""The ledger of one queue: messages in flight, acknowledged, and to be retried."""

from __future__ import annotations

from broker_core.broker.pop.ledger import AckOutcome, Lease, LeaseState, PopLedger


def popped(ledger: PopLedger, *offsets: int, time_ms: int = 1, order: bool = False) -> Lease:
    lease = Lease(time_ms, 60.0, is_order=order, attempt_id="a" if order else "")
    ledger.take(lease, offsets, max(offsets) + 1)
    return lease


def test_the_first_message_in_flight_is_how_far_a_group_has_come() -> None:
    ledger = PopLedger(5)
    assert (ledger.low, ledger.next_offset, ledger.is_idle) == (5, 5, True)
    popped(ledger, 5, 6, 7)
    assert ledger.acknowledge(6, 1) is AckOutcome.DONE
    assert ledger.low == 5
    assert ledger.acknowledge(5, 1) is AckOutcome.DONE
    assert ledger.low == 7
    assert ledger.acknowledge(7, 1) is AckOutcome.DONE
    assert (ledger.low, ledger.next_offset) == (8, 8)


def test_what_a_filter_leaves_out_is_done() -> None:
    ledger = PopLedger(0)
    popped(ledger, 3, 9)
    ledger.skip_to(20)
    assert ledger.low == 3
    assert ledger.acknowledge(3, 1) is AckOutcome.DONE
    assert ledger.low == 9
    assert ledger.acknowledge(9, 1) is AckOutcome.DONE
    assert ledger.low == 20


def test_acknowledging_twice_is_harmless() -> None:
    ledger = PopLedger(0)
    popped(ledger, 0, 1)
    assert ledger.acknowledge(1, 1) is AckOutcome.DONE
    assert ledger.acknowledge(1, 1) is AckOutcome.DONE_BEFORE
    assert ledger.in_flight_count == 1


def test_a_handle_counts_until_there_is_a_newer_one() -> None:
    ledger = PopLedger(0)
    popped(ledger, 0, 1)
    newer = Lease(2, 90.0)
    assert ledger.change(0, 1, newer)
    assert not ledger.change(0, 1, Lease(3, 90.0))
    assert ledger.acknowledge(0, 1) is AckOutcome.STALE
    assert ledger.acknowledge(0, 2) is AckOutcome.DONE
    assert not ledger.change(7, 1, Lease(3, 90.0))
    assert ledger.low == 1


def test_handles_from_before_a_restart_are_remembered() -> None:
    ledger = PopLedger(3)
    assert ledger.acknowledge(1, 1) is AckOutcome.DONE_BEFORE
    assert ledger.acknowledge(5, 1) is AckOutcome.REMEMBERED
    assert not ledger.is_idle
    assert ledger.unacknowledged([3, 4, 5, 6]) == [3, 4, 6]
    popped(ledger, 3, 4, 6)
    assert ledger.acknowledge(5, 1) is AckOutcome.DONE_BEFORE


def test_handles_from_before_a_reset_are_not() -> None:
    ledger = PopLedger(3, accepts_from_ms=100)
    assert ledger.acknowledge(5, 99) is AckOutcome.STALE
    assert ledger.unacknowledged([5]) == [5]


def test_a_lease_has_the_offsets_that_are_not_acknowledged() -> None:
    ledger = PopLedger(0)
    lease = popped(ledger, 0, 1, 2)
    ledger.acknowledge(1, 1)
    ledger.change(2, 1, Lease(2, 90.0))
    assert ledger.offsets_of(lease) == [0]
    ledger.done(0)
    assert (ledger.offsets_of(lease), lease.left) == ([], 0)
    assert ledger.low == 2


def test_a_queue_in_order_is_locked_until_it_is_empty() -> None:
    ledger = PopLedger(0)
    assert not ledger.is_locked("b")
    popped(ledger, 0, 1, order=True)
    assert ledger.is_locked("b")
    assert ledger.is_locked("")
    assert not ledger.is_locked("a")
    ledger.acknowledge(0, 1)
    assert ledger.is_locked("b")
    ledger.acknowledge(1, 1)
    assert not ledger.is_locked("b")


def test_the_same_attempt_gets_the_same_again() -> None:
    ledger = PopLedger(0)
    popped(ledger, 0, 1, order=True)
    assert ledger.given_again("b", 32) == []
    assert ledger.given_again("a", 32) == [0, 1]
    assert ledger.pop_time_after(1) == 2
    ledger.take_again(Lease(2, 60.0, is_order=True, attempt_id="a"), [0, 1])
    assert ledger.tries_of(0) == 0
    assert ledger.acknowledge(0, 1) is AckOutcome.STALE
    assert ledger.acknowledge(0, 2) is AckOutcome.DONE


def test_a_queue_that_keeps_its_messages_gives_them_out_again_and_counts() -> None:
    ledger = PopLedger(0)
    lease = popped(ledger, 0, 1, 2, order=True)
    ledger.acknowledge(1, 1)
    lease.state = LeaseState.MOVING
    assert ledger.is_locked("b")
    ledger.keep(ledger.offsets_of(lease))
    assert not ledger.is_locked("b")
    assert ledger.given_again("", 1) == [0]
    assert ledger.given_again("", 32) == [0, 2]
    # No other client has it yet: a late acknowledgement is accepted.
    assert ledger.acknowledge(2, 1) is AckOutcome.DONE
    assert not ledger.change(0, 1, Lease(2, 60.0))
    ledger.take_again(Lease(2, 60.0, is_order=True), [0])
    assert ledger.tries_of(0) == 1
    assert ledger.is_locked("b")
    assert ledger.acknowledge(0, 2) is AckOutcome.DONE
    assert ledger.tries_of(0) == 0
    assert ledger.low == 3


def test_what_retention_took_is_done() -> None:
    ledger = PopLedger(0)
    popped(ledger, 0, 1, 2)
    ledger.forget_before(2)
    ledger.skip_to(2)
    assert (ledger.low, ledger.in_flight_count) == (2, 1)
    ledger.forget_before(10)
    ledger.skip_to(10)
    assert (ledger.low, ledger.in_flight_count) == (10, 0)
