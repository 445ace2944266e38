"""Batches that are too large are refused before anything is visible, with a helpful error."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from broker_core.broker.sink.limits import in_properties
from broker_core.codec.wire.bodies.sink_messages import (
    COMPLETE,
    PART_NOTE,
    PREPARE,
    Publication,
    SinkNote,
    encode_note,
)
from broker_core.errors import StagingRefused
from broker_core.store.writes.message import Message
from tests.broker.sink_cluster import SinkCluster
from tests.broker.sink_store import SinkStore, identity

A, B = "broker-a", "broker-b"
T0: Any = ("T", 0)
LIMIT = 10_000
SAYS = rf"sinkBatchSizeMax is {LIMIT}\. Set sinkBatchSizeMax higher in broker\.conf, or write small"


def test_a_part_that_is_too_large_is_not_prepared() -> None:
    """If the other broker decided it, half of the batch could never be published."""
    two = SinkCluster({A: SinkStore(), B: SinkStore(group_size_max=LIMIT)})
    rows = [b"%d" % n + bytes(700) for n in range(20)]
    with pytest.raises(StagingRefused, match=rf"part of batch 0 of sink S .* {SAYS}"):
        two.write(identity(0), {A: {T0: [b"a"]}, B: {T0: rows}})
    assert two.bodies() == []
    assert two.brokers[B].batches.find("S").prepared is None  # type: ignore[union-attr]
    # In smaller batches it goes.
    for batch in range(5):
        part = rows[4 * batch : 4 * batch + 4]
        two.write(identity(batch, "run-2"), {A: {T0: [b"a"]}, B: {T0: part}})
    assert sorted(two.bodies()) == sorted([*rows, *[b"a"] * 5])


@pytest.mark.parametrize("seed", range(30))
def test_what_was_prepared_fits_wherever_the_log_ends(seed: int) -> None:
    """Rows that leave much of every log file blank, behind logs that end anywhere."""
    chance = random.Random(seed)
    broker = SinkStore(group_size_max=1 << 20)
    for _ in range(chance.randrange(20)):
        assert broker.store.append(Message("other", bytes(chance.randrange(1_500)))).ok
    longest = chance.choice((10, 500, 3_000, 5_000))
    rows = [bytes(chance.randrange(longest)) for _ in range(chance.randrange(1, 60))]
    part = broker.stage(identity(0), {T0: rows})
    with broker.store.staging.open_runs([part]) as runs:
        note = encode_note(SinkNote(PART_NOTE, identity(0), 1))
        room = broker.store.groups.room(runs, note)
    asyncio.run(broker.publisher.publish(Publication(identity(0), (part,), PREPARE, 1)))
    asyncio.run(broker.publisher.publish(Publication(identity(0), (), COMPLETE, 1)))
    [published] = broker.batches.find("S").batches  # type: ignore[union-attr]
    assert published.end - published.position <= room.size_most
    assert room.size_max == 1 << 20


def test_a_batch_that_is_too_large_for_its_broker() -> None:
    sinks = SinkStore(group_size_max=LIMIT)
    with pytest.raises(StagingRefused, match=rf"the group has \d+ bytes, {SAYS}"):
        sinks.write(identity(0), [bytes(700)] * 20)
    assert not sinks.write(identity(0), [b"small"]).is_repeat


def test_errors_that_name_no_field_are_unchanged() -> None:
    assert in_properties("count or checksum does not match") == "count or checksum does not match"
