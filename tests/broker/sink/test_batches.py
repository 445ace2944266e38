"""Which batch of a sink is published, repeated or refused, also after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_core.broker.sink.batches import BATCHES_KEPT, SinkBatches
from broker_core.codec.wire.bodies.sink_messages import Publication
from broker_core.errors import (
    InvalidArgument,
    SinkBatchOld,
    SinkContentDiffers,
    SinkFenced,
    StagingRefused,
)
from broker_core.protocol_codes import FlushDiskType
from tests.broker.sink_store import SinkStore, identity

TWO_QUEUES: dict[Any, Any] = {("T", 0): [b"a", b"b"], ("T", 1): [b"c"]}


def test_a_batch_is_published_once() -> None:
    sinks = SinkStore()
    first = sinks.write(identity(0), TWO_QUEUES)
    assert (first.is_repeat, first.batch) == (False, 0)
    assert first.offsets == {"T": {0: (0, 2), 1: (0, 1)}}
    again = sinks.write(identity(0), [b"other rows of a replay"])
    assert (again.is_repeat, again.offsets) == (True, first.offsets)
    assert sinks.all_bodies() == [b"a", b"b", b"c"]
    assert sinks.staged_files == []
    second = sinks.write(identity(1), [b"d"])
    assert second.offsets == {"T": {0: (2, 3)}}


def test_nothing_is_visible_before_the_publication() -> None:
    sinks = SinkStore()
    part = sinks.stage(identity(0), [b"a"])
    assert sinks.all_bodies() == []
    after = sinks.killed()
    assert after.all_bodies() == []
    assert after.publish(identity(0), part).offsets == {"T": {0: (0, 1)}}
    assert after.all_bodies() == [b"a"]


def test_only_the_named_writers_are_published_and_the_others_are_swept() -> None:
    sinks = SinkStore()
    loser = sinks.stage(identity(0), [b"attempt 0"])
    winner = sinks.stage(identity(0), [b"attempt 1"])
    later = sinks.stage(identity(1), [b"next batch"])
    other = sinks.stage(identity(0, sink="other"), [b"other sink"])
    sinks.publish(identity(0), winner)
    assert sinks.bodies() == [b"attempt 1"]
    assert sorted(sinks.staged_files) == sorted([later.staging_id, other.staging_id])
    with pytest.raises(StagingRefused):
        sinks.publish(identity(1), loser)
    sinks.publish(identity(1), later)
    assert sinks.bodies() == [b"attempt 1", b"next batch"]


def test_an_empty_batch_counts() -> None:
    sinks = SinkStore()
    assert sinks.publish(identity(0)).offsets == {}
    assert sinks.publish(identity(0)).is_repeat
    assert sinks.killed().publish(identity(0)).is_repeat


def test_batch_numbers_may_have_gaps_but_never_go_back() -> None:
    sinks = SinkStore()
    sinks.write(identity(3), [b"3"])
    sinks.write(identity(7), [b"7"])
    with pytest.raises(SinkBatchOld, match="restored from an older state"):
        sinks.write(identity(5), [b"5"])
    assert sinks.bodies() == [b"3", b"7"]


def test_a_late_duplicate_of_an_earlier_batch_is_a_repeat() -> None:
    """R15: the commit of batch N delivered again after N+1 began, by the same run."""
    sinks = SinkStore()
    part = sinks.stage(identity(0), [b"0"])
    sinks.publish(identity(0), part)
    sinks.write(identity(1), [b"1"])
    late = sinks.publish(identity(0), part)
    assert (late.is_repeat, late.offsets) == (True, {"T": {0: (0, 1)}})
    assert sinks.bodies() == [b"0", b"1"]


def test_an_older_checkpoint_is_refused_unless_its_content_is_the_same() -> None:
    sinks = SinkStore()
    for batch in range(3):
        sinks.write(identity(batch, content=f"rows {batch}"), [b"%d" % batch])
    restored = "run-2"
    with pytest.raises(SinkContentDiffers, match="other content"):
        sinks.write(identity(1, restored, content="more rows"), [b"x"])
    with pytest.raises(SinkBatchOld):
        sinks.write(identity(1, restored), [b"x"])
    assert sinks.write(identity(1, restored, content="rows 1"), [b"1"]).is_repeat
    assert sinks.write(identity(2, restored, content="rows 2"), [b"2"]).is_repeat
    assert not sinks.write(identity(3, restored, content="rows 3"), [b"3"]).is_repeat
    assert sinks.bodies() == [b"0", b"1", b"2", b"3"]


def test_the_last_batch_with_other_content_is_refused() -> None:
    sinks = SinkStore()
    sinks.write(identity(0, content="a"), [b"a"])
    with pytest.raises(SinkContentDiffers, match="run-1"):
        sinks.write(identity(0, "run-2", content="b"), [b"b"])
    assert sinks.write(identity(0, "run-2"), [b"not compared"]).is_repeat


def test_batches_that_are_long_gone_are_refused() -> None:
    sinks = SinkStore()
    for batch in range(BATCHES_KEPT + 2):
        sinks.write(identity(batch, content="same"), [b"x"])
    with pytest.raises(SinkBatchOld):
        sinks.publish(identity(0, content="same"))
    assert sinks.publish(identity(2, content="same")).is_repeat


# Runs


def test_a_new_run_replaces_the_old_one_for_good() -> None:
    sinks = SinkStore()
    zombie = sinks.stage(identity(0, "run-1"), [b"zombie"])
    live = sinks.stage(identity(0, "run-2"), [b"live"])
    with pytest.raises(SinkFenced, match="replaced by run run-2"):
        sinks.publish(identity(0, "run-1"), zombie)
    # Also when the broker forgot everything but its disk.
    sinks = sinks.killed()
    with pytest.raises(SinkFenced):
        sinks.publish(identity(0, "run-1"), zombie)
    sinks.publish(identity(0, "run-2"), live)
    for asked in (identity(0, "run-1"), identity(1, "run-1")):
        with pytest.raises(SinkFenced):
            sinks.publish(asked, zombie)
        with pytest.raises(SinkFenced):
            sinks.stage(asked, [b"more"])
    assert sinks.bodies() == [b"live"]


def test_a_repeat_by_a_new_run_takes_over() -> None:
    sinks = SinkStore()
    sinks.write(identity(0, "run-1"), [b"0"])
    assert sinks.publish(identity(0, "run-2")).is_repeat
    sinks = sinks.killed()
    with pytest.raises(SinkFenced):
        sinks.publish(identity(1, "run-1"))


def test_what_one_run_staged_another_cannot_publish() -> None:
    sinks = SinkStore()
    part = sinks.stage(identity(0, "run-1"), [b"0"])
    for asked in (identity(1, "run-1"), identity(0, "run-1", "other"), identity(0, "run-2")):
        with pytest.raises(StagingRefused, match="was staged for batch 0 of sink S by run run-1"):
            sinks.publish(asked, part)
    assert sinks.all_bodies() == []


def test_a_copied_checkpoint_is_refused() -> None:
    sinks = SinkStore()
    sinks.write(identity(0, lineage="file:/a"), [b"0"])
    for _ in range(2):
        with pytest.raises(SinkFenced, match="belongs to checkpoint file:/a, not to file:/b"):
            sinks.stage(identity(1, "run-2", lineage="file:/b"), [b"1"])
        with pytest.raises(SinkFenced, match="copied checkpoint"):
            sinks.publish(identity(1, "run-2", lineage="file:/b"))
        # The refused run replaced no other run.
        sinks = sinks.restart()
    assert not sinks.write(identity(1, lineage="file:/a"), [b"1"]).is_repeat


def test_staged_data_that_is_not_as_promised_is_refused() -> None:
    sinks = SinkStore()
    part = sinks.stage(identity(0), [b"a", b"b"])
    for wrong in (
        part._replace(record_count=1),
        part._replace(size=part.size - 1),
        part._replace(checksum=part.checksum ^ 1),
        part._replace(staging_id="0" * 32),
        part._replace(staging_id="../commitlog/00000000000000000000"),
    ):
        with pytest.raises(StagingRefused):
            sinks.publish(identity(0), wrong)
    with pytest.raises(StagingRefused, match="twice"):
        sinks.publish(identity(0), part, part)
    assert sinks.all_bodies() == []
    sinks.publish(identity(0), part)
    assert sinks.bodies() == [b"a", b"b"]


def test_staged_data_that_a_power_cut_took_is_refused() -> None:
    sinks = SinkStore()
    part = sinks.stage(identity(0), [b"a"])
    nothing = next(iter(sinks.disk.crash_states(2)))
    after = sinks.successor(sinks.disk.reboot(nothing))
    with pytest.raises(StagingRefused):
        after.publish(identity(0), part)
    assert after.write(identity(0, "run-2"), [b"again"]).offsets == {"T": {0: (0, 1)}}


# One at a time


def test_concurrent_publications_of_one_batch() -> None:
    sinks = SinkStore(flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    parts = [sinks.stage(identity(0), [b"%d" % n]) for n in range(4)]

    async def scenario() -> list[Any]:
        requests = [sinks.publisher.publish(Publication(identity(0), (part,))) for part in parts]
        return await asyncio.gather(*requests)

    answers = asyncio.run(scenario())
    assert [answer.is_repeat for answer in answers].count(False) == 1
    assert all(answer.offsets == {"T": {0: (0, 1)}} for answer in answers)
    assert len(sinks.bodies()) == 1
    assert sinks.staged_files == []


# Large batches are verified on a thread while others are served

ON_A_THREAD: dict[str, Any] = {"inline_size_max": -1}


def test_a_large_batch_over_several_log_files() -> None:
    rows = [b"%d" % n + bytes(700) for n in range(60)]
    stored = []
    for options in ({}, ON_A_THREAD):
        sinks = SinkStore(**options)
        part = sinks.stage(identity(0), {("T", 0): rows, ("U", 0): rows[:5]})
        answer = sinks.publish(identity(0), part, sinks.stage(identity(0), [b"more"]))
        assert answer.offsets == {"T": {0: (0, 61)}, "U": {0: (0, 5)}}
        assert sinks.store.log_range[1] > 4 * (8 << 10)
        assert sinks.bodies() == [*rows, b"more"]
        sinks = sinks.killed()
        assert sinks.publish(identity(0)) == answer._replace(is_repeat=True)
        stored.append(sinks.all_bodies())
    assert stored[0] == stored[1]


@pytest.mark.parametrize("options", [{}, ON_A_THREAD])
def test_damaged_or_missing_data_is_refused(options: dict[str, Any]) -> None:
    sinks = SinkStore(**options)
    part = sinks.stage(identity(0), [b"a" * 100])
    with pytest.raises(StagingRefused):
        sinks.publish(identity(0), part._replace(checksum=1))
    file = sinks.disk.open(f"staging/{part.staging_id}")
    file.write(150, b"?")
    file.close()
    with pytest.raises(StagingRefused, match="checksum"):
        sinks.publish(identity(0), part)
    assert not sinks.write(identity(0), [b"b"]).is_repeat
    assert sinks.bodies() == [b"b"]


def test_data_that_is_dropped_while_it_is_verified() -> None:
    sinks = SinkStore(**ON_A_THREAD)
    part = sinks.stage(identity(0), [b"a"])

    async def scenario() -> None:
        asked = Publication(identity(0), (part,))
        publishing = asyncio.ensure_future(sinks.publisher.publish(asked))
        while not sinks.publisher._pending:  # noqa: ASYNC110
            await asyncio.sleep(0)
        sinks.staging.drop([part.staging_id])
        with pytest.raises(StagingRefused):
            await publishing

    asyncio.run(scenario())
    assert sinks.all_bodies() == []
    assert not sinks.write(identity(0), [b"b"]).is_repeat


def test_concurrent_publications_on_threads() -> None:
    sinks = SinkStore(**ON_A_THREAD)
    parts = [sinks.stage(identity(0), [b"%d" % n]) for n in range(4)]

    async def scenario() -> list[Any]:
        flows = [sinks.publisher.publish(Publication(identity(0), (part,))) for part in parts]
        return await asyncio.gather(*flows)

    answers = asyncio.run(scenario())
    assert [answer.is_repeat for answer in answers].count(False) == 1
    assert len(sinks.bodies()) == 1


def test_a_topic_that_was_closed_meanwhile() -> None:
    refused: list[str] = []

    def check(request: Any) -> None:
        if refused:
            raise InvalidArgument(f"{request.topic} is closed")

    sinks = SinkStore(check_queue=check)
    part = sinks.stage(identity(0), [b"0"])
    refused.append("T")
    with pytest.raises(InvalidArgument, match="T is closed"):
        sinks.publish(identity(0), part)
    refused.clear()
    assert not sinks.publish(identity(0), part).is_repeat


# The tests are tested


def test_found_when_the_batch_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkBatches, "judge", lambda self, asked: None)
    with pytest.raises(AssertionError):
        test_a_batch_is_published_once()


def test_found_when_runs_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkBatches, "check_run", lambda self, asked: None)
    # What the old run staged was dropped when the new one came: the second thing that stops it.
    with pytest.raises(StagingRefused, match="unknown, open or expired"):
        test_a_new_run_replaces_the_old_one_for_good()
