"""Batches on several brokers: reserve, prepare, decide, complete, and every way to be stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import (
    COMPLETE,
    DECIDE,
    PREPARE,
    RESERVE,
    Publication,
    encode_publication,
    parse_publication,
)
from broker_core.errors import (
    ConnectionLost,
    InvalidArgument,
    SinkBatchOld,
    SinkFenced,
    StagingRefused,
)
from tests.broker.sink_cluster import SinkCluster
from tests.broker.sink_store import Rows, SinkStore, identity

A, B, C = "broker-a", "broker-b", "broker-c"
T0: Any = ("T", 0)


def cluster(*names: str, **settings: Any) -> SinkCluster:
    return SinkCluster({name: SinkStore(**settings) for name in names or (A, B)})


def both(batch: int) -> dict[str, Rows]:
    return {name: {T0: [f"{batch}/{name}".encode()]} for name in (A, B)}


def ask(broker: SinkStore, publication: Publication) -> Any:
    received = parse_publication(encode_publication(publication))
    return asyncio.run(broker.publisher.publish(received))


def reserve(broker: SinkStore, who: Any) -> Publication:
    """A new attempt; the phases that follow are made of it."""
    answer = ask(broker, Publication(who, phase=RESERVE))
    return Publication(who, token=answer.reserved, attempt=answer.reserved_attempt)


def test_both_parts_become_visible() -> None:
    two = cluster()
    answer = two.write(identity(0), both(0))
    assert answer == (False, 0, {A: {"T": {0: (0, 1)}}, B: {"T": {0: (0, 1)}}})
    assert sorted(two.bodies()) == [b"0/broker-a", b"0/broker-b"]
    again = two.write(identity(0, "run-2"), both(0))
    assert again == answer._replace(is_repeat=True)
    assert two.brokers[A].staged_files == two.brokers[B].staged_files == []
    two = two.killed()
    assert two.write(identity(0, "run-3"), both(0)).is_repeat
    assert not two.write(identity(1, "run-3"), both(1)).is_repeat
    assert len(two.bodies()) == 4


def test_the_coordinator_stays_the_same() -> None:
    two = cluster()
    # Without one that decided before, the first of those that have rows does.
    assert set(two.write(identity(0), {B: {T0: [b"0"]}}).offsets) == {B}
    assert two.brokers[A].batches.status("S").coordinator == B
    two = cluster()
    # Only the second broker took part in the first batch: it decides from now on.
    staged = two.stage(identity(0), {B: {T0: [b"0"]}})
    asyncio.run(two.client.publish(identity(0), staged))
    assert asyncio.run(two.client.coordinator("S", (A, B))) == B
    two.write(identity(1), both(1))
    assert asyncio.run(two.client.coordinator("S", (A, B))) == B
    two = two.killed()
    assert two.brokers[B].batches.status("S").is_coordinator
    with pytest.raises(InvalidArgument, match="broker-b decides"):
        asyncio.run(two.client.publish(identity(2), two.stage(identity(2), {A: {T0: [b"2"]}})))


STEPS = ((A, RESERVE), (B, PREPARE), (A, DECIDE), (B, COMPLETE))


@pytest.mark.parametrize("killed", [(), (A,), (B,), (A, B)])
@pytest.mark.parametrize("step", STEPS)
def test_a_writer_that_dies_on_the_way(step: tuple[str, str], killed: tuple[str, ...]) -> None:
    """The next run splits the rows in another way; each is there once in the end."""
    two = cluster()
    two.write(identity(0), both(0))

    def stop(name: str, publication: Publication) -> None:
        if (name, publication.phase) == step and publication.identity.batch == 1:
            raise ConnectionLost("the writer dies here")

    two.client.before = stop
    rows = [b"1/x", b"1/y", b"1/z"]
    staged = two.stage(identity(1), {A: {T0: rows[:2]}, B: {T0: rows[2:]}})
    with pytest.raises(ConnectionLost):
        two.publish(identity(1), staged)
    # Spark calls abort after a commit that failed.
    asyncio.run(two.client.abort(staged))
    if killed:
        two = two.killed(*killed)
    two.client.before = lambda name, publication: None
    is_decided = step == (B, COMPLETE)
    before = [body for body in two.bodies() if body.startswith(b"1/")]
    assert before == (rows[:2] if is_decided else [])
    answer = two.write(identity(1, "run-2"), {A: {T0: rows[:1]}, B: {T0: rows[1:]}})
    assert answer.is_repeat is is_decided
    assert sorted(body for body in two.bodies() if body.startswith(b"1/")) == rows
    two.write(identity(2, "run-2"), both(2))
    assert len(two.bodies()) == 7
    assert two.brokers[A].staged_files == two.brokers[B].staged_files == []


def test_an_attempt_that_was_replaced_cannot_be_decided() -> None:
    two = cluster()
    old = two.stage(identity(0), both(0))
    who = identity(0)
    first = reserve(two.brokers[A], who)
    ask(two.brokers[B], first._replace(phase=PREPARE, parts=(old[1],)))
    new = two.stage(who, both(0))
    second = reserve(two.brokers[A], who)
    assert second.token > first.token
    ask(two.brokers[B], second._replace(phase=PREPARE, parts=(new[1],)))
    # The late prepare of the first attempt must not push out the second.
    with pytest.raises(SinkFenced, match="replaced by attempt"):
        ask(two.brokers[B], first._replace(phase=PREPARE, parts=(old[1],)))
    with pytest.raises(SinkFenced, match="not the one that was reserved last"):
        ask(two.brokers[A], first._replace(phase=DECIDE, parts=(old[0],), others=(B,)))
    with pytest.raises(StagingRefused, match="not prepared here as attempt"):
        ask(two.brokers[B], first._replace(phase=COMPLETE))
    ask(two.brokers[A], second._replace(phase=DECIDE, parts=(new[0],), others=(B,)))
    ask(two.brokers[B], second._replace(phase=COMPLETE))
    assert len(two.bodies()) == 2
    late = second._replace(phase=PREPARE, parts=(new[1],), token=second.token + 1)
    with pytest.raises(SinkBatchOld, match="published here already"):
        ask(two.brokers[B], late)


def test_a_prepared_part_is_kept() -> None:
    two = cluster(staging_expiry_ms=1_000)
    who = identity(0)
    staged = two.stage(who, both(0))
    attempt = reserve(two.brokers[A], who)
    prepare = attempt._replace(phase=PREPARE, parts=(staged[1],))
    ask(two.brokers[B], prepare)
    assert ask(two.brokers[B], prepare).token == attempt.token
    with pytest.raises(StagingRefused, match="with other parts"):
        ask(two.brokers[B], prepare._replace(parts=()))
    ask(two.brokers[A], attempt._replace(phase=DECIDE, parts=(staged[0],), others=(B,)))
    # Neither an abort, nor time, nor a power cut takes it.
    assert asyncio.run(two.client.abort(staged)) == 0
    broker = two.brokers[B]
    broker.clock.advance(5_000)
    broker.staging.begin(identity(0, sink="other"))
    broker.store.staging.expire()
    worst = next(iter(broker.disk.crash_states(2)))
    broker = broker.successor(broker.disk.reboot(worst))
    broker.clock.advance(5_000)
    broker.store.staging.expire()
    ask(broker, attempt._replace(identity=identity(0, "run-2"), phase=COMPLETE))
    assert broker.bodies() == [b"0/broker-b"]


def test_a_later_attempt_completes_what_was_decided() -> None:
    """Even if its writer no longer asks for it, because the next batch was on one broker only."""
    two = cluster()

    def stop(name: str, publication: Publication) -> None:
        if publication.phase == COMPLETE and publication.identity.batch == 0:
            raise ConnectionLost("the writer dies here")

    two.client.before = stop
    with pytest.raises(ConnectionLost):
        two.write(identity(0), both(0))
    two.write(identity(1), {A: {T0: [b"1"]}})
    two.write(identity(2), both(2))
    assert sorted(two.bodies()) == sorted(
        [b"0/broker-a", b"0/broker-b", b"1", b"2/broker-a", b"2/broker-b"]
    )


def test_a_broker_that_was_taken_away_after_its_last_batch() -> None:
    """A writer does not ask again about batches that it has completed on all brokers."""
    three = cluster(A, B, C)
    three.write(identity(0), {name: {T0: [f"0/{name}".encode()]} for name in (A, B, C)})
    asked: list[tuple[str, str, int]] = []

    def gone(name: str, publication: Publication) -> None:
        asked.append((name, publication.phase, publication.identity.batch))
        if name == C:
            raise ConnectionLost("connection refused")

    three.client.before = gone
    for batch in (1, 2):
        staged = three.stage(identity(batch), both(batch))
        asyncio.run(three.client.publish(identity(batch), staged, A))
    assert (C, COMPLETE, 0) not in asked
    assert sorted(body for body in three.bodies() if body[:1] in b"12") == [
        b"1/broker-a", b"1/broker-b", b"2/broker-a", b"2/broker-b",
    ]  # fmt: skip
    # Each batch is completed once, and not again by the next one.
    assert asked.count((B, COMPLETE, 1)) == asked.count((B, COMPLETE, 2)) == 1


def test_a_broker_that_is_away_and_may_lack_its_part() -> None:
    """Another process wrote the last batch, and it is unknown whether it ended."""
    three = cluster(A, B, C)
    three.write(identity(0), {name: {T0: [f"0/{name}".encode()]} for name in (A, B, C)})
    later = SinkCluster(three.brokers)

    def gone(name: str, publication: Publication) -> None:
        if name == C:
            raise ConnectionLost("connection refused")

    later.client.before = gone
    staged = later.stage(identity(1, "run-2"), both(1))
    says = r"broker-c cannot .* batch 0 of sink S.* start it again \(connection.* new sinkId"
    with pytest.raises(ConnectionLost, match=says):
        asyncio.run(later.client.publish(identity(1, "run-2"), staged, A))
    later.client.before = lambda name, publication: None
    asyncio.run(later.client.publish(identity(1, "run-2"), staged, A))
    assert len(later.bodies()) == 5


def test_what_is_prepared_must_be_there() -> None:
    two = cluster()
    who = identity(0)
    part = StagedPart("0" * 32, 1, 1, 1)
    with pytest.raises(StagingRefused):
        ask(two.brokers[B], Publication(who, (part,), PREPARE, 1))
    with pytest.raises(SinkFenced):
        ask(two.brokers[A], Publication(who, (), DECIDE, 1, (B,)))
    staged = [part._replace(broker_name=A), part._replace(broker_name=B)]
    with pytest.raises(StagingRefused):
        two.publish(who, staged)
    assert two.write(who, both(0)).batch == 0


def test_two_coordinators_are_refused() -> None:
    two = cluster()
    for name in (A, B):
        staged = two.stage(identity(0), {name: {T0: [b"x"]}})
        asyncio.run(two.client.publish(identity(0), staged))
    with pytest.raises(InvalidArgument, match="on their own"):
        two.write(identity(1), both(1))


def test_two_writers_at_once() -> None:
    """Two drivers on one checkpoint race through all phases; the rows of one of them win."""
    two = cluster()
    runs = [two.stage(identity(0, "run-1"), both(0)) for _ in range(4)]

    async def race() -> list[Any]:
        flows = [two.client.publish(identity(0, "run-1"), staged, A) for staged in runs]
        return await asyncio.gather(*flows, return_exceptions=True)

    answers = asyncio.run(race())
    fine = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert all(isinstance(a, SinkFenced) for a in answers if isinstance(a, BaseException))
    assert fine
    assert len(two.bodies()) == 2
