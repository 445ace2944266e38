"""Which batch of a sink is published, repeated or refused, and that a restart knows the same."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from broker_core.broker.sink_batches import BATCHES_KEPT, SINKS_FILE, SinkBatches
from broker_core.codec.sink_messages import BATCH_NOTE, Publication, SinkNote, encode_note
from broker_core.errors import (
    CorruptStore,
    DiskFailed,
    InvalidArgument,
    LimitReached,
    SinkBatchOld,
    SinkContentDiffers,
    SinkFenced,
    StagingRefused,
    StoreUnusable,
)
from broker_core.protocol_codes import FlushDiskType
from broker_core.storage.atomic_file import read_file
from broker_core.storage.json_table import JsonTable
from broker_core.store.message import Message
from tests.broker.sink_store import SinkStore, identity
from tests.store.small_store import run_of

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
        # Not even the refused run replaced anybody.
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


# The table and its file


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_knows_what_was_published(clean: bool) -> None:
    sinks = SinkStore()
    first = sinks.write(identity(0, "run-1", lineage="l", content="c"), TWO_QUEUES)
    sinks.write(identity(5, "run-9", "other"), [b"x"])
    status = [sinks.batches.status(name) for name in ("S", "other")]
    for _ in range(2):
        sinks = sinks.restart() if clean else sinks.killed()
        assert [sinks.batches.status(name) for name in ("S", "other")] == status
        assert sinks.publish(identity(0, "run-1")) == first._replace(is_repeat=True)


def test_notes_behind_the_file_are_read_from_the_log() -> None:
    sinks = SinkStore()
    sinks.write(identity(0), [b"0"])
    assert sinks.batches.save()
    assert not sinks.batches.save()
    sinks.write(identity(1), [b"1"])
    after = sinks.killed()
    assert after.batches.status("S").batch == 1
    assert after.batches.has_unsaved
    assert after.publish(identity(1)).is_repeat


def test_the_table_outlives_the_log_files_of_its_batches() -> None:
    sinks = SinkStore(file_reserved_hours=1, delete_files_per_round=100)
    sinks.write(identity(0, content="c"), [b"0"])
    assert read_file(sinks.disk, SINKS_FILE) is None
    _fill(sinks)
    assert sinks.store.offsets("rmq_sys_append_group", 0)[0] > 0
    # Saved by the cleaning itself: nobody else did.
    after = sinks.killed()
    assert after.batches.status("S").batch == 0
    again = after.publish(identity(0, "run-2", content="c"))
    assert (again.is_repeat, again.offsets) == (True, {})
    assert after.write(identity(1, "run-2"), [b"1"]).batch == 1


def _fill(sinks: SinkStore) -> None:
    """Enough other traffic to make retention remove the first files."""
    for _ in range(40):
        assert sinks.store.append(Message("other", bytes(1_000))).ok
    sinks.store.flush()
    sinks.clock.advance(3_600_000 * 2)
    assert sinks.store.append(Message("other", bytes(1_000))).ok
    start = sinks.store.log_range[0]
    assert sinks.store.clean(manual=True) > start


def test_log_files_stay_when_the_table_cannot_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = SinkStore(file_reserved_hours=1, delete_files_per_round=100)
    sinks.write(identity(0), [b"0"])

    def full(self: JsonTable, table: dict[str, Any]) -> None:
        raise OSError(28, "no space")

    start = sinks.store.log_range[0]
    with monkeypatch.context() as patch:
        patch.setattr(JsonTable, "save", full)
        with pytest.raises(DiskFailed, match="no space"):
            _fill(sinks)
    assert sinks.store.log_range[0] == start
    assert sinks.killed().batches.status("S").batch == 0


def test_notes_that_are_nowhere_stop_the_start() -> None:
    sinks = SinkStore(file_reserved_hours=1, delete_files_per_round=100)
    sinks.write(identity(0), [b"0"])
    sinks.batches.save()
    old = read_file(sinks.disk, SINKS_FILE)
    assert old is not None
    sinks.write(identity(1), [b"1"])
    _fill(sinks)
    sinks.stop()
    for path in (SINKS_FILE, f"{SINKS_FILE}.bak"):
        file = sinks.disk.open(path)
        file.resize(0)
        file.write(0, old)
        file.close()
    with pytest.raises(CorruptStore, match="in neither the file nor the log"):
        sinks.successor(sinks.disk)


def test_a_file_of_another_log_is_not_used() -> None:
    sinks = SinkStore()
    sinks.write(identity(4), [b"4"])
    sinks.stop()
    data = read_file(sinks.disk, SINKS_FILE)
    assert data is not None
    fresh = SinkStore()
    fresh.stop()
    fresh.disk.make_dir("config")
    file = fresh.disk.create(SINKS_FILE)
    file.write(0, data)
    file.close()
    after = fresh.successor(fresh.disk)
    assert not after.batches.status("S").is_known


def test_a_file_that_is_ahead_of_the_log_gives_way_to_it() -> None:
    """A log restored from an older copy: what is not in it was not published."""
    sinks = SinkStore()
    sinks.write(identity(0), [b"0"])
    sinks.stop()
    older = sinks.disk.copy()
    later = sinks.successor(sinks.disk)
    later.write(identity(1), [b"1"])
    later.stop()
    data = read_file(later.disk, SINKS_FILE)
    assert data is not None
    file = older.open(SINKS_FILE)
    file.resize(0)
    file.write(0, data)
    file.close()
    restored = later.successor(older)
    assert restored.batches.status("S").batch == 0
    assert not restored.write(identity(1, "run-2"), [b"1"]).is_repeat
    assert restored.bodies() == [b"0", b"1"]


@pytest.mark.parametrize(
    "change",
    [
        {"notesEntered": -1},
        {"notesEntered": "1"},
        {"sinks": []},
        {"sinks": {"S": 1}},
        {"sinks": {"S": {"batches": [[1, 2, 3]]}}},
    ],
)
def test_a_file_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    sinks = SinkStore()
    sinks.write(identity(0), [b"0"])
    sinks.stop()
    data = read_file(sinks.disk, SINKS_FILE)
    assert data is not None
    table = {**json.loads(data), **change}
    del table["checksum"]
    text = json.dumps(table).encode()
    file = sinks.disk.open(SINKS_FILE)
    file.resize(0)
    file.write(0, text)
    file.close()
    with pytest.raises(StoreUnusable, match=SINKS_FILE):
        sinks.successor(sinks.disk)


def test_groups_of_others_are_not_ours() -> None:
    sinks = SinkStore()
    assert sinks.store.append_group([run_of(b"x")], b"a note of somebody else").ok
    sinks.write(identity(0), [b"0"])
    after = sinks.killed()
    assert len(after.batches) == 1
    assert after.publish(identity(0)).is_repeat


def test_a_note_of_a_newer_version_stops_the_start() -> None:
    sinks = SinkStore()
    newer = encode_note(SinkNote(BATCH_NOTE, identity(0))).replace(b'"v":1', b'"v":2')
    assert sinks.store.append_group([], newer).ok
    sinks.store.flush()
    with pytest.raises(StoreUnusable, match="version 2"):
        sinks.killed()


# Limits


def test_too_many_sinks() -> None:
    sinks = SinkStore(limits={"sinks_max": 3})
    for number in range(3):
        sinks.write(identity(0, sink=f"S{number}"), [b"x"])
        sinks.clock.advance(1_000)
    with pytest.raises(LimitReached, match="at most 3"):
        sinks.write(identity(0, sink="S3"), [b"x"])
    # Those that are there go on.
    sinks.write(identity(1, sink="S0"), [b"x"])
    sinks.clock.advance(8 * 86_400_000)
    sinks.write(identity(2, sink="S0"), [b"x"])
    sinks.write(identity(0, sink="S3"), [b"x"])
    assert not sinks.batches.status("S1").is_known
    assert sinks.batches.status("S2").is_known


def test_batch_jobs_are_forgotten_when_they_cannot_be_repeated() -> None:
    sinks = SinkStore(limits={"sinks_max": 3, "once_keep_ms": 10_000})
    for number in range(3):
        sinks.write(identity(0, f"job-{number}", f"job-{number}", once=True), [b"x"])
    assert sinks.publish(identity(0, "job-0", "job-0", once=True)).is_repeat
    with pytest.raises(LimitReached):
        sinks.write(identity(0), [b"x"])
    sinks.clock.advance(20_000)
    sinks.write(identity(0), [b"x"])
    assert len(sinks.batches) == 1


def test_saving_twice_at_once_is_refused() -> None:
    sinks = SinkStore()
    sinks.write(identity(0), [b"x"])
    unsaved = sinks.batches.unsaved()
    assert unsaved is not None
    with pytest.raises(DiskFailed, match="being written"):
        sinks.batches.save()
    sinks.write(identity(1), [b"x"])
    sinks.batches.write(unsaved)
    sinks.batches.written(unsaved)
    assert sinks.batches.has_unsaved
    assert sinks.batches.save()


# The tests are tested


def test_found_when_the_batch_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkBatches, "judge", lambda self, asked: None)
    with pytest.raises(AssertionError):
        test_a_batch_is_published_once()


def test_found_when_runs_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkBatches, "check_run", lambda self, asked: None)
    with pytest.raises(pytest.fail.Exception):
        test_a_new_run_replaces_the_old_one_for_good()
