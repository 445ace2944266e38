"""Puts that wait for the disk and for slaves."""

from __future__ import annotations

import pytest

from broker_core.flush.durable_ack import DurableAcks
from broker_core.flush.replicated_ack import ReplicatedAcks
from broker_core.protocol_codes import PutStatus
from broker_core.runtime.watermark import Watermark
from tests.fakes.manual_clock import ManualClock


class Slaves:
    """A gate that a test opens."""

    def __init__(self) -> None:
        self.confirmed = Watermark(0)
        self.is_available = True

    def available(self, position: int) -> bool:
        return self.is_available


class Put:
    """One put to position 10, and its answer."""

    def __init__(self, *, with_disk: bool = True) -> None:
        self.clock, self.flushed, self.slaves = ManualClock(), Watermark(0), Slaves()
        disk = DurableAcks(self.flushed, self.clock, 1_000) if with_disk else None
        self.acks = ReplicatedAcks(disk, self.slaves, self.clock, 3_000)
        self.answers: list[PutStatus] = []

    def begin(self) -> None:
        self.acks.when(10, self.answers.append)

    def later(self, ms: int) -> None:
        self.clock.advance(ms)
        self.acks.tick()


@pytest.mark.parametrize("first", ["disk", "slaves"])
def test_the_answer_comes_when_both_have_it(first: str) -> None:
    put = Put()
    put.begin()
    marks = [put.flushed, put.slaves.confirmed]
    for mark in marks if first == "disk" else reversed(marks):
        assert put.answers == []
        mark.advance(10)
    assert put.answers == [PutStatus.PUT_OK]


def test_without_a_disk_to_wait_for() -> None:
    put = Put(with_disk=False)
    put.begin()
    put.slaves.confirmed.advance(10)
    assert put.answers == [PutStatus.PUT_OK]


def test_slaves_that_are_late() -> None:
    put = Put()
    put.begin()
    put.flushed.advance(10)
    put.later(3_000)
    assert put.answers == [PutStatus.FLUSH_SLAVE_TIMEOUT]


def test_too_few_slaves_are_not_waited_for() -> None:
    put = Put()
    put.slaves.is_available = False
    put.begin()
    assert put.answers == []
    put.flushed.advance(10)
    assert put.answers == [PutStatus.SLAVE_NOT_AVAILABLE]


def test_the_worse_verdict_of_a_failed_disk_wins() -> None:
    put = Put()
    put.slaves.is_available = False
    put.begin()
    put.flushed.fail(OSError("the disk failed"))
    assert len(put.answers) == 1
    assert not put.answers[0].stored
