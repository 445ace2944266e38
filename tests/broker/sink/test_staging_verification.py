"""Staged records are verified on threads, ahead of their publication."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import Publication, parse_block
from broker_core.errors import StagingRefused
from broker_core.storage.staging import staging_area as staging
from tests.broker.sink_store import SinkStore, blocks_of, identity

WHO = identity()


def rows(first: int, count: int = 20) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


async def stage(sinks: SinkStore, *parts: list[bytes], told: bool = True) -> StagedPart:
    """A writer that reports its progress to the broker after every part."""
    await sinks.publisher.announce(WHO)
    staging_id = sinks.staging.begin(WHO)
    for index, part in enumerate(parts):
        [block] = blocks_of(part)
        sinks.staging.append(staging_id, index, *parse_block(block))
        if told:
            sinks.publisher.written(staging_id, sinks.store.staging.size)
            await asyncio.sleep(0)
    part = sinks.staging.seal(staging_id)
    if told:
        sinks.publisher.sealed(part)
    return part


def damage(sinks: SinkStore, part: StagedPart, at: int) -> None:
    sinks.clock.advance(1)
    file = sinks.disk.open(f"staging/{part.staging_id}")
    file.write(at, bytes([file.read(at, 1)[0] ^ 1]))
    file.close()


@pytest.mark.parametrize("told", [True, False])
def test_what_is_proven_is_published(told: bool) -> None:
    sinks = SinkStore(inline_size_max=0)

    async def scenario() -> None:
        parts = [await stage(sinks, rows(0), rows(20), rows(40), told=told)]
        parts.append(await stage(sinks, rows(60), told=not told))
        answer = await sinks.publisher.publish(Publication(WHO, tuple(parts)))
        assert answer.offsets["T"][0] == (0, 80)

    asyncio.run(scenario())
    assert sinks.bodies() == rows(0, 80)
    assert sinks.staged_files == []


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_what_is_changed_after_its_proof_is_refused(share: float) -> None:
    sinks = SinkStore(inline_size_max=0)

    async def scenario() -> None:
        part = await stage(sinks, rows(0), rows(20), rows(40))
        verification = sinks.publisher._verification
        await verification.verified([part])
        assert len(verification) == 1
        damage(sinks, part, int(part.size * share))
        with pytest.raises(StagingRefused):
            await sinks.publisher.publish(Publication(WHO, (part,)))

    asyncio.run(scenario())
    assert sinks.all_bodies() == []
    assert not sinks.store.fenced


def test_verdicts_on_what_is_gone_are_forgotten() -> None:
    sinks = SinkStore(inline_size_max=0)

    async def scenario() -> None:
        first = await stage(sinks, rows(0))
        await sinks.publisher.publish(Publication(WHO, (first,)))
        await stage(sinks, rows(20))
        assert len(sinks.publisher._verification) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("read_size_max", [0, 1 << 20])
def test_a_run_that_changes_before_it_is_written_leaves_the_log_alone(
    read_size_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "READ_SIZE_MAX", read_size_max)
    sinks = SinkStore(inline_size_max=0)
    part = sinks.stage(WHO, rows(0))
    with sinks.store.staging.open_runs([part]) as runs:
        inspected = sinks.store.inspect_runs(runs)
        damage(sinks, part, part.size // 2)
        result = sinks.store.append_group(runs, b"note", inspected)
    # Short batches were read as a whole when they were opened.
    assert result.ok is (read_size_max > 0)
    assert not sinks.store.fenced
    assert sinks.store.append_group([], b"other").ok
