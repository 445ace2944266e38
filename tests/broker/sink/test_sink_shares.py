"""One sink does not block the others: take-overs free what was staged, and no sink can use all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker_core import errors
from broker_core.client.sink import stage_writer
from broker_core.codec.wire.bodies.sink_messages import (
    BATCH_NOTE,
    PREPARE,
    BatchIdentity,
    Publication,
    SinkNote,
    parse_block,
)
from broker_core.errors import StagingRefused, SystemBusy
from broker_core.protocol_codes import RequestCode
from tests.broker.sink_store import SinkStore, blocks_of, identity
from tests.client.sink.test_staging_file import Neighbour, neighbour
from tests.codec.codec_backends import batch_of
from tests.fakes.manual_worker import ManualWorker

Run = Callable[..., Any]
LIMIT = 200_000
QUEUE = ((b"T", 0),)


async def stage(sink: Neighbour, who: BatchIdentity, size: int, *, sealed: bool = True) -> Any:
    writer = await sink.stage(who, "broker-a")
    for _ in range(size // 10_000):
        await writer.append(batch_of(b"x" * 10_000, queues=QUEUE))
    return await writer.seal() if sealed else writer


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_query_that_keeps_crashing_does_not_block_others(
    is_local: bool, is_sealed: bool, tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_local:
        monkeypatch.setattr(stage_writer, "open_staging_file", lambda *_: None)
    monkeypatch.setattr(stage_writer, "GROWTH_SIZE", 1_000)

    async def scenario() -> None:
        async with neighbour(tmp_path, sinkStagingSizeMax=str(LIMIT)) as (_, sink):
            for number in range(20):
                # Its writers are gone before they publish, and it starts anew.
                crashing = BatchIdentity("crashing", 0, f"run-{number}")
                await stage(sink, crashing, 70_000, sealed=is_sealed)
                well = BatchIdentity("well", number, "run-1")
                staged = await stage(sink, well, 50_000)
                assert not (await sink.publish(well, [staged])).is_repeat
            # Nor does it block itself.
            last = BatchIdentity("crashing", 0, "run-last")
            assert not (await sink.publish(last, [await stage(sink, last, 70_000)])).is_repeat

    run_async(scenario())


def test_a_query_that_crashes_together_with_its_broker_does_not_block_others(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the broker finds when it starts belongs to a run, too; of another sink it stays."""
    monkeypatch.setattr(stage_writer, "GROWTH_SIZE", 1_000)

    async def scenario() -> None:
        patient = BatchIdentity("patient", 0, "run-1")
        kept = None
        for number in range(10):
            async with neighbour(tmp_path, sinkStagingSizeMax=str(LIMIT)) as (_, sink):
                if kept is None:
                    kept = await stage(sink, patient, 20_000)
                crashing = BatchIdentity("crashing", 0, f"run-{number}")
                await stage(sink, crashing, 70_000)
                well = BatchIdentity("well", number, "run-1")
                staged = await stage(sink, well, 30_000)
                assert not (await sink.publish(well, [staged])).is_repeat
        async with neighbour(tmp_path, sinkStagingSizeMax=str(LIMIT)) as (_, sink):
            # Its query is the same run as before the restarts, and can publish.
            assert not (await sink.publish(patient, [kept])).is_repeat

    run_async(scenario())


def test_prepared_parts_outlive_a_take_over_after_a_restart() -> None:
    sinks = SinkStore()
    old = identity(0, run="old")
    prepared = sinks.stage(old, [b"p"])
    other = sinks.stage(old, [b"q"])
    _prepare(sinks, old, prepared)
    sinks = sinks.killed()
    assert other.staging_id in sinks.staged_files
    sinks.stage(identity(0, run="new"), [b"n"])
    assert prepared.staging_id in sinks.staged_files
    assert other.staging_id not in sinks.staged_files


def test_a_sink_that_takes_what_it_can_get_leaves_some(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_writer, "GROWTH_SIZE", 1_000)

    async def scenario() -> None:
        async with neighbour(tmp_path, sinkStagingSizeMax=str(LIMIT)) as (_, sink):
            well, greedy = BatchIdentity("well", 0, "r"), BatchIdentity("greedy", 0, "r")
            await sink.publish(well, [await stage(sink, well, 30_000)])
            with pytest.raises(errors.SystemBusy, match="half of what the others leave"):
                await stage(sink, greedy, 2 * LIMIT)
            well = well._replace(batch=1)
            await sink.publish(well, [await stage(sink, well, 40_000)])

    run_async(scenario())


def test_a_limit_below_the_room_that_writers_of_files_reserve(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        async with neighbour(tmp_path, sinkStagingSizeMax=str(LIMIT)) as (_, sink):
            alone = BatchIdentity("alone", 0, "r")
            staged = await stage(sink, alone, 150_000)
            other = BatchIdentity("other", 0, "r")
            await sink.publish(other, [await stage(sink, other, 20_000)])
            with pytest.raises(errors.SystemBusy, match="half of what the others leave"):
                await stage(sink, other._replace(batch=1), 40_000)
            await sink.publish(alone, [staged])

    run_async(scenario())


def test_prepared_parts_outlive_a_take_over() -> None:
    sinks = SinkStore()
    old = identity(0, run="old")
    prepared = sinks.stage(old, [b"p"])
    other = sinks.stage(old, [b"q"])
    _prepare(sinks, old, prepared)
    sinks.stage(identity(0, run="new"), [b"n"])
    assert prepared.staging_id in sinks.staged_files
    assert other.staging_id not in sinks.staged_files
    with pytest.raises(StagingRefused):
        sinks.staging.append(other.staging_id, 0, *parse_block(blocks_of([b"x"])[0]))


def _prepare(sinks: SinkStore, who: BatchIdentity, part: Any) -> None:
    asyncio.run(sinks.publisher.publish(Publication(who, (part,), PREPARE, 1)))


def test_a_sink_alone_has_it_all() -> None:
    sinks = SinkStore(staging_size_max=20_000, staging_limits={"drafts_max": 4})
    for _ in range(4):
        sinks.staging.begin(identity())
    with pytest.raises(errors.LimitReached):
        sinks.staging.begin(identity())
    alone = SinkStore(staging_size_max=20_000)
    alone.stage(identity(), [b"x" * 1_000] * 15)
    # Others that have been silent for long want nothing any more.
    alone.stage(identity(sink="other"), [b"x"])
    alone.clock.advance(3_600_001)
    alone.stage(identity(1), [b"x" * 1_000] * 15)


def test_a_newcomer_waits_for_one_that_has_it_all() -> None:
    sinks = SinkStore(staging_size_max=20_000, staging_limits={"drafts_max": 4})
    writers = [sinks.staging.begin(identity()) for _ in range(4)]
    [block] = blocks_of([b"x" * 1_000] * 16)
    sinks.staging.append(writers[0], 0, *parse_block(block))
    with pytest.raises(SystemBusy):
        sinks.staging.begin(identity(sink="new"))
    sinks.staging.seal(writers[0])
    # It may not grow while another one waits.
    with pytest.raises(SystemBusy):
        sinks.staging.append(writers[1], 0, *parse_block(blocks_of([b"x"])[0]))
    with pytest.raises(SystemBusy):
        sinks.staging.begin(identity())
    newcomer = sinks.staging.begin(identity(sink="new"))
    with pytest.raises(SystemBusy, match="sinkStagingSizeMax=20000"):
        sinks.staging.append(newcomer, 0, *parse_block(blocks_of([b"y" * 2_000])[0]))
    sinks.staging.drop(writers)
    sinks.staging.append(newcomer, 0, *parse_block(blocks_of([b"y" * 2_000])[0]))


def killed_jobs(sinks: SinkStore, count: int, rows: int) -> None:
    """Each stages what it can get of these rows, and is gone."""
    for number in range(count):
        job = identity(sink=f"job-{number}", run="r", once=True)
        staging_id = sinks.staging.begin(job)
        with contextlib.suppress(SystemBusy, StagingRefused):
            for index in range(rows):
                [block] = blocks_of([b"j" * 1_000])
                sinks.staging.append(staging_id, index, *parse_block(block))


def test_killed_jobs_leave_room_when_they_have_been_idle() -> None:
    sinks = SinkStore(staging_size_max=40_000)
    # The first one has it all.
    killed_jobs(sinks, 10, rows=100)
    with pytest.raises(SystemBusy, match="while other sinks want room"):
        sinks.stage(identity(sink="new"), [b"x" * 1_000] * 4)
    sinks.clock.advance(601_000)
    sinks.write(identity(sink="new"), [b"x" * 1_000] * 16)
    assert sinks.bodies() == [b"x" * 1_000] * 16


def test_writers_of_killed_jobs_leave_room_when_they_have_been_idle() -> None:
    sinks = SinkStore(staging_limits={"drafts_max": 4})
    for _ in range(4):
        sinks.staging.begin(identity(sink="job", once=True))
    with pytest.raises(SystemBusy):
        sinks.staging.begin(identity(sink="new"))
    sinks.clock.advance(601_000)
    sinks.staging.begin(identity(sink="new"))


def test_a_query_has_its_share_beside_any_number_of_killed_jobs() -> None:
    sinks = SinkStore(staging_size_max=40_000)
    sinks.write(identity(sink="query"), [b"x"])
    killed_jobs(sinks, 10, rows=100)
    sinks.write(identity(1, sink="query"), [b"y" * 1_000] * 8)
    with pytest.raises(SystemBusy, match="are for all jobs"):
        sinks.stage(identity(sink="job", once=True), [b"x" * 1_000])


def test_a_job_that_is_at_work_or_alone_keeps_what_it_staged() -> None:
    sinks = SinkStore(staging_size_max=40_000)
    working, slow = (identity(sink=name, once=True) for name in ("working", "slow"))
    early, sealed = sinks.stage(working, [b"e"] * 4), sinks.stage(slow, [b"s"] * 4)
    sinks.clock.advance(601_000)
    late = sinks.stage(working, [b"l"] * 4)
    # Room is short: only the slow one was idle.
    with pytest.raises(SystemBusy):
        sinks.stage(identity(sink="new"), [b"x" * 1_000] * 35)
    sinks.publish(working, early, late)
    with pytest.raises(StagingRefused):
        sinks.publish(slow, sealed)
    # No other sink needs the room, and a commit counts as work.
    patient = sinks.stage(slow, [b"p"])
    sinks.clock.advance(601_000)
    sinks.publish(slow, patient)
    assert sinks.bodies() == [*[b"e"] * 4, *[b"l"] * 4, b"p"]


def test_a_job_that_writes_its_file_renews_it_before_it_counts_as_idle(
    tmp_path: Path, run_async: Run
) -> None:
    """Also with a longer expiry: the broker says how often a writer has to ask."""

    async def scenario() -> None:
        async with neighbour(tmp_path, sinkStagingExpiryMs="86400000") as (asker, _):
            begin = partial(asker.ask, RequestCode.STAGE_BEGIN, batchId=0, runId="r")
            assert (await begin(sinkId="job", once="true")).ext["expiryMs"] == "600000"
            assert (await begin(sinkId="query")).ext["expiryMs"] == "86400000"

    run_async(scenario())


def test_a_request_waits_for_the_files_of_dropped_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = SinkStore(staging_size_max=2_000_000)
    worker = ManualWorker()
    monkeypatch.setattr(sinks.store.staging, "_worker", worker)
    sinks.stage(identity(run="old"), [b"x" * 4_000] * 400)
    new = identity(run="new")
    with pytest.raises(SystemBusy, match="being removed"):
        sinks.stage(new, [b"y" * 4_000] * 400)
    worker.run_all()
    sinks.stage(new._replace(run="newer"), [b"y" * 4_000] * 400)


def test_writers_are_shared_too() -> None:
    sinks = SinkStore(staging_limits={"drafts_max": 16})
    begun = [sinks.staging.begin(identity(sink="other"))]
    with pytest.raises(SystemBusy, match="at most 7 of 16"):
        for _ in range(16):
            begun.append(sinks.staging.begin(identity()))
    assert len(begun) == 8
    # The next sink gets half of the rest.
    for _ in range(4):
        sinks.staging.begin(identity(sink="third"))
    with pytest.raises(SystemBusy):
        sinks.staging.begin(identity(sink="third"))


@pytest.mark.parametrize("renewal", ["append", "grow", "begin", "seal", "renew"])
def test_work_on_one_part_of_a_batch_renews_all(renewal: str) -> None:
    sinks = SinkStore(staging_expiry_ms=1_000)
    sealed = sinks.stage(identity(), [b"a"])
    draft, long, written = (sinks.staging.begin(identity()) for _ in range(3))
    sinks.staging.grow(written, 1)
    elsewhere = sinks.staging.begin(identity(1))
    for step in range(8):
        sinks.clock.advance(700)
        if renewal == "append":
            sinks.staging.append(long, step, *parse_block(blocks_of([b"%d" % step])[0]))
        elif renewal == "grow":
            sinks.staging.grow(written, step + 2)
        elif renewal == "renew":
            assert sinks.staging.renew(identity()) == 4
            assert sinks.staging.renew(identity(2)) == 0
        elif renewal == "begin" or step:
            sinks.staging.begin(identity())
        else:
            sinks.staging.seal(long)
        sinks.store.staging.expire()
    assert {sealed.staging_id, draft, long, written} <= set(sinks.staged_files)
    assert elsewhere not in sinks.staged_files
    sinks.staging.append(draft, 0, *parse_block(blocks_of([b"b"])[0]))
    parts = sealed, sinks.staging.seal(draft)
    sinks.publish(identity(), *parts)
    assert sinks.bodies() == [b"a", b"b"]


def test_batch_jobs_leave_the_table_after_minutes() -> None:
    """Seven a second for an hour: they never meet the limit."""
    sinks, offset = SinkStore(), 0
    for second in range(3_600):
        sinks.clock.advance(1_000)
        for number in range(7):
            job = identity(sink=f"job-{second}-{number}", run="r", once=True)
            sinks.batches.check_run(job)
            offset += 1
            sinks.batches.enter(SinkNote(BATCH_NOTE, job), offset, 0, 0, sinks.clock.wall_ms())
        if second % 60 == 0:
            sinks.batches.save()
    assert len(sinks.batches) < 7 * 60 * 12
    # What stays is the rest: streams, and the last jobs, whose commit may still be repeated.
    assert sinks.batches.find("job-3599-0") is not None
    assert sinks.batches.find("job-2000-0") is None


def test_a_commit_of_a_job_that_was_forgotten_publishes_nothing_twice() -> None:
    sinks = SinkStore()
    job = identity(sink="job", once=True)
    part = sinks.stage(job, [b"a"])
    sinks.publish(job, part)
    sinks.clock.advance(300_000)
    sinks.batches.save()
    assert sinks.publish(job, part).is_repeat
    sinks.clock.advance(601_000)
    sinks.write(identity(sink="other"), [b"b"])
    sinks.batches.save()
    assert sinks.batches.find("job") is None
    with pytest.raises(StagingRefused):
        sinks.publish(job, part)
    assert sinks.bodies() == [b"a", b"b"]
