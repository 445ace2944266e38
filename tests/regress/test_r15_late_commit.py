"""R15 (Kafka, KIP-890): a delayed commit, abort or write of batch N arrived during batch N+1.

Rows were lost, torn apart, or seen though they had been given up. Here every order in which the
requests of three batches, their duplicates and a zombie's can arrive ends with each batch once.
"""

from __future__ import annotations

import itertools

import pytest

from broker_core.broker.sink.batches import SinkBatches
from broker_core.broker.sink.staging import SinkStaging
from broker_core.codec.records.staged_block import StagedPart
from broker_core.errors import RmqError
from tests.broker.sink_store import SinkStore, identity


def _scenario() -> int:
    """The commit of batch 0 is held and comes, once or twice, anywhere after its first copy."""
    orders = 0
    steps = ["commit 0", "commit 1", "commit 2", "late 0", "late 1", "abort 0", "zombie 1"]
    for order in itertools.permutations(steps):
        places = {step: order.index(step) for step in steps}
        # A run commits its batches in order; copies and aborts of a batch come after its commit.
        if not places["commit 0"] < places["commit 1"] < places["commit 2"]:
            continue
        if places["late 0"] < places["commit 0"] or places["late 1"] < places["commit 1"]:
            continue
        if places["abort 0"] < places["commit 0"]:
            continue
        orders += 1
        _play(order)
    return orders


def _play(order: tuple[str, ...]) -> None:
    sinks = SinkStore()
    zombie = sinks.stage(identity(1, "run-0"), [b"zombie"])
    parts: dict[int, StagedPart] = {}
    for step in order:
        what, _, number = step.partition(" ")
        batch = int(number)
        if what == "commit":
            parts[batch] = sinks.stage(identity(batch), [b"%d" % batch])
            assert not sinks.publish(identity(batch), parts[batch]).is_repeat
        elif what == "late":
            assert sinks.publish(identity(batch), parts[batch]).is_repeat
        elif what == "abort":
            sinks.publisher.abort([parts[batch].staging_id])
        elif parts:
            with pytest.raises(RmqError):
                sinks.publish(identity(batch, "run-0"), zombie)
    assert sinks.bodies() == [b"0", b"1", b"2"]


def test_late_requests_change_nothing() -> None:
    assert _scenario() > 100


def test_the_scenario_finds_a_commit_that_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkBatches, "judge", lambda self, asked: None)
    monkeypatch.setattr(SinkStaging, "drop", lambda self, ids: 0)
    with pytest.raises((AssertionError, RmqError)):
        _scenario()


def test_the_scenario_finds_a_zombie_that_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkBatches, "check_run", lambda self, asked: None)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        _scenario()
