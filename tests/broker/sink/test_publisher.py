"""Races that once lost or doubled a part of a batch, each as it was found by reading the code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_core.broker.sink.batches import DECISIONS_KEPT, SINKS_FILE
from broker_core.broker.sink.sink_record import Decision, Sink
from broker_core.codec.wire.bodies.sink_messages import (
    COMPLETE,
    DECIDE,
    PREPARE,
    Publication,
)
from broker_core.errors import BrokerNotExist, ConnectionLost, InvalidArgument, StagingRefused
from broker_core.storage.files.json_table import JsonTable
from broker_core.storage.staging.staging_area import StagingArea
from tests.broker.sink_cluster import SinkCluster
from tests.broker.sink_store import SinkStore, identity

A, B, C = "broker-a", "broker-b", "broker-c"
T0: Any = ("T", 0)


def cluster(*names: str, **settings: Any) -> SinkCluster:
    return SinkCluster({name: SinkStore(**settings) for name in names or (A, B)})


def ask(broker: SinkStore, publication: Publication) -> Any:
    return asyncio.run(broker.publisher.publish(publication))


@pytest.mark.parametrize("taker", ["abort", "expiry", "writers"])
def test_what_is_being_prepared_is_not_dropped(taker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request timed out at the driver, which aborts; the one that it repeated goes through.

    The coordinator decides the batch then, so that this broker must be able to complete it.
    """
    broker = SinkStore(staging_expiry_ms=1_000)
    who = identity(0)
    part = broker.stage(who, {T0: [b"x"]})
    make_durable = StagingArea.make_durable

    def late(self: StagingArea, staging_ids: list[str]) -> None:
        make_durable(self, staging_ids)
        if taker == "abort":
            assert broker.publisher.abort([part.staging_id]) == 0
        broker.clock.advance(5_000)
        if taker == "expiry":
            broker.store.staging.expire()
        if taker == "writers":
            broker.staging.begin(identity(0, sink="other"))

    monkeypatch.setattr(StagingArea, "make_durable", late)
    ask(broker, Publication(who, (part,), PREPARE, 1))
    ask(broker, Publication(who, (), COMPLETE, 1))
    assert broker.bodies() == [b"x"]
    assert not [name for name in broker.staged_files if name == part.staging_id]


def test_what_could_not_be_prepared_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SinkStore(staging_expiry_ms=1_000)
    who = identity(0)
    part = broker.stage(who, {T0: [b"x"]})

    def fails(self: StagingArea, staging_ids: list[str]) -> None:
        raise ConnectionLost("no matter what")

    with monkeypatch.context() as patch:
        patch.setattr(StagingArea, "make_durable", fails)
        with pytest.raises(ConnectionLost):
            ask(broker, Publication(who, (part,), PREPARE, 1))
    broker.clock.advance(5_000)
    broker.store.staging.expire()
    assert broker.staged_files == []
    with pytest.raises(StagingRefused):
        ask(broker, Publication(who, (part,), PREPARE, 1))


def test_without_its_coordinator_a_sink_stops() -> None:
    """Batch 1 is decided and partly visible; the broker that knows so is gone for good."""
    three = cluster(A, B, C)
    three.write(identity(0), {name: {T0: [f"0/{name}".encode()]} for name in (A, B, C)})
    three.write(identity(1), {A: {T0: [b"1/a"]}, B: {T0: [b"1/b"]}})
    left = SinkCluster({name: three.brokers[name] for name in (B, C)})
    # The driver did not get the answer, and the rows all go to the third broker this time.
    with pytest.raises(BrokerNotExist, match=r"broker-a, which decides .* sink S"):
        left.write(identity(1, "run-2"), {C: {T0: [b"1/a", b"1/b"]}})
    assert sorted(three.bodies()) == [b"0/broker-a", b"0/broker-b", b"0/broker-c", b"1/a", b"1/b"]


def test_a_broker_without_rows_has_the_coordinator_too() -> None:
    three = cluster(A, B, C)
    three.write(identity(0), {A: {T0: [b"0"]}})
    for name in (B, C):
        alone = SinkCluster({name: three.brokers[name]}).killed()
        assert alone.brokers[name].batches.status("S").coordinator == A
        with pytest.raises(BrokerNotExist):
            alone.write(identity(0, "run-2"), {name: {T0: [b"0"]}})
        staged = alone.stage(identity(0, "run-2"), {name: {T0: [b"0"]}})
        # A client that does not ask first gets the error from the broker.
        with pytest.raises(InvalidArgument, match="broker-a decides"):
            asyncio.run(alone.client.publish(identity(0, "run-2"), staged))


def test_a_broker_that_joins_gets_the_coordinator() -> None:
    two = cluster(A, B)
    two.write(identity(0), {B: {T0: [b"0"]}})
    assert two.brokers[A].batches.status("S").coordinator == B
    three = SinkCluster({**two.brokers, "aaa": SinkStore()})
    three.write(identity(1), {"aaa": {T0: [b"1"]}})
    assert three.brokers["aaa"].batches.status("S").coordinator == B
    assert three.brokers[B].batches.status("S").is_coordinator


def _half_prepared(phase: str) -> SinkCluster:
    """Batch 0 stopped before this phase, and many batches that were on one broker only since."""
    two = cluster()

    def stop(name: str, publication: Publication) -> None:
        if publication.phase == phase and publication.identity.batch == 0:
            raise ConnectionLost("the writer dies here")

    two.client.before = stop
    with pytest.raises(ConnectionLost):
        two.write(identity(0), {A: {T0: [b"0/a"]}, B: {T0: [b"0/b"]}})
    two.client.before = lambda name, publication: None
    if phase == DECIDE:
        two.write(identity(0), {A: {T0: [b"0/a", b"0/b"]}})
    for batch in range(1, 12):
        two.write(identity(batch), {A: {T0: [b"%d" % batch]}})
    assert two.brokers[B].batches.find("S").prepared is not None  # type: ignore[union-attr]
    return two


@pytest.mark.parametrize("phase", [DECIDE, COMPLETE])
@pytest.mark.parametrize("is_killed", [False, True])
def test_batches_on_one_broker_push_no_decision_out(phase: str, is_killed: bool) -> None:
    """A part that was never decided is replaced, one that was is completed, however late."""
    two = _half_prepared(phase)
    if is_killed:
        two.brokers[A].batches.save()
        two = two.killed()
    two.write(identity(12), {A: {T0: [b"12/a"]}, B: {T0: [b"12/b"]}})
    single = [b"%d" % batch for batch in range(1, 12)]
    assert sorted(two.bodies()) == sorted([b"0/a", b"0/b", *single, b"12/a", b"12/b"])
    assert two.brokers[A].staged_files == two.brokers[B].staged_files == []


@pytest.mark.parametrize("phase", [DECIDE, COMPLETE])
def test_a_part_without_a_known_decision_is_not_replaced(phase: str) -> None:
    """Its batch is older than everything that the coordinator's file of an earlier version has."""
    two = _half_prepared(phase)
    two.brokers[A].stop()
    table = JsonTable(two.brokers[A].disk, SINKS_FILE)
    content = table.load()
    assert content is not None
    del content["sinks"]["S"]["decisions"]
    table.save(content)
    two.brokers[A] = two.brokers[A].successor(two.brokers[A].disk)
    with pytest.raises(StagingRefused, match=r"batch 0 .* repeat that batch"):
        two.write(identity(12), {A: {T0: [b"12/a"]}, B: {T0: [b"12/b"]}})
    assert two.brokers[B].batches.find("S").prepared is not None  # type: ignore[union-attr]


def test_the_number_of_kept_decisions_is_limited() -> None:
    two = cluster()

    def stop(name: str, publication: Publication) -> None:
        if publication.phase == COMPLETE and name == B:
            raise ConnectionLost("the writer dies here")

    two.client.before = stop
    with pytest.raises(ConnectionLost):
        two.write(identity(0), {A: {T0: [b"0/a"]}, B: {T0: [b"0/b"]}})
    two = SinkCluster({**two.brokers, C: SinkStore()})
    two.write(identity(1), {A: {T0: [b"1"]}})
    for batch in range(2, 2 + DECISIONS_KEPT):
        two.write(identity(batch), {A: {T0: [b"x"]}, C: {T0: [b"x"]}})
    decisions = two.brokers[A].batches.find("S").decisions  # type: ignore[union-attr]
    assert len(decisions) == DECISIONS_KEPT
    with pytest.raises(StagingRefused, match=r"batch 0 .* repeat that batch"):
        two.write(identity(99), {A: {T0: [b"99/a"]}, B: {T0: [b"99/b"]}})


def test_decisions_that_the_log_lost_were_not_made() -> None:
    sink = Sink()
    sink.decisions = [Decision(3, 1, 10), Decision(4, 2, 14)]
    sink.forget_from(14)
    assert sink.decisions == [Decision(3, 1, 10)]
    sink.forget_from(10)
    # From batch 3 on nothing is decided; what came before is not known.
    assert sink.decisions == [Decision(3, 0, -1)]
    assert Sink().decisions == [(-1, 0, -1, "")]


def test_an_empty_replay_completes_what_was_decided() -> None:
    two = cluster()

    def stop(name: str, publication: Publication) -> None:
        if publication.phase == COMPLETE:
            raise ConnectionLost("the writer dies here")

    two.client.before = stop
    with pytest.raises(ConnectionLost):
        two.write(identity(0), {A: {T0: [b"0/a"]}, B: {T0: [b"0/b"]}})
    two.client.before = lambda name, publication: None
    assert two.write(identity(0, "run-2"), {}).is_repeat
    assert sorted(two.bodies()) == [b"0/a", b"0/b"]


def test_long_batches_do_not_expire_while_their_tasks_come_and_go() -> None:
    broker = SinkStore(staging_expiry_ms=1_000)
    who = identity(0)
    early = broker.stage(who, {T0: [b"early"]})
    for _ in range(4):
        broker.clock.advance(600)
        late = broker.stage(who, {T0: [b"late"]})
        broker.store.staging.expire()
    broker.publish(who, early, late)
    assert broker.bodies() == [b"early", b"late"]
