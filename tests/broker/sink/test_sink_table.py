"""The table of sinks: restored by a restart, kept beyond the log, and limited."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker_core.broker.sink.batches import SINKS_FILE
from broker_core.codec.wire.bodies.sink_messages import BATCH_NOTE, SinkNote, encode_note
from broker_core.errors import CorruptStore, DiskFailed, LimitReached, StoreUnusable
from broker_core.storage.files.atomic_file import read_file
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.writes.message import Message
from tests.broker.sink_store import SinkStore, identity
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import run_of

TWO_QUEUES: dict[Any, Any] = {("T", 0): [b"a", b"b"], ("T", 1): [b"c"]}


@pytest.mark.parametrize("clean", [True, False])
def test_published_batches_are_known_after_a_restart(clean: bool) -> None:
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
    # Saved by the retention itself; nothing else saved it.
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


def test_notes_that_are_neither_in_the_file_nor_in_the_log_stop_the_start() -> None:
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
    restored = later.successor(_with_file_of(older, later))
    assert restored.batches.status("S").batch == 0
    assert not restored.write(identity(1, "run-2"), [b"1"]).is_repeat
    assert restored.bodies() == [b"0", b"1"]


def _with_file_of(disk: SimulatedDisk, other: SinkStore) -> SimulatedDisk:
    """The disk, with the table of another one."""
    data = read_file(other.disk, SINKS_FILE)
    assert data is not None
    file = disk.open(SINKS_FILE)
    file.resize(0)
    file.write(0, data)
    file.close()
    return disk


def test_a_note_that_a_start_dropped_does_not_count_later() -> None:
    """A slave copied the table before the log, is promoted, and is killed after its first note.

    That note has the number of one that is lost: a file that still counts it hides the new one.
    """
    sinks = SinkStore()
    sinks.write(identity(0), [b"0"])
    sinks.stop()
    behind = sinks.disk.copy()
    master = sinks.successor(sinks.disk)
    master.write(identity(1), [b"lost"])
    master.stop()
    promoted = master.successor(_with_file_of(behind, master))
    saved = json.loads(read_file(promoted.disk, SINKS_FILE) or b"")
    assert saved["notesEntered"] == promoted.store.offsets("rmq_sys_append_group", 0)[1]
    promoted.stage(identity(1, "run-2"), [b"never sealed"])
    after = promoted.killed()
    assert after.batches.status("S")[:3] == (True, 0, "run-2")
    assert not after.write(identity(1, "run-2"), [b"1"]).is_repeat
    assert after.bodies() == [b"0", b"1"]


def test_a_file_of_another_history_gives_way_to_the_log() -> None:
    """The log lost its end and grew again: it has as many notes as the file now."""
    sinks = SinkStore()
    sinks.write(identity(0), [b"0"])
    sinks.stop()
    other = sinks.successor(sinks.disk.copy())
    other.write(identity(1), [b"only there, and longer"])
    other.write(identity(2), [b"only there"])
    other.stop()
    here = sinks.successor(sinks.disk)
    here.write(identity(5, "run-5", "U"), [b"x"])
    here.write(identity(6, "run-5", "U"), [b"y"])
    after = here.successor(_with_file_of(here.disk.kill(), other))
    assert after.batches.status("S").batch == 0
    assert after.batches.status("U").batch == 6
    assert not after.write(identity(1, "run-2"), [b"1"]).is_repeat
    assert after.killed().bodies() == [b"0", b"x", b"y", b"1"]


def test_a_file_without_positions_is_believed() -> None:
    """An earlier version wrote it."""
    sinks = SinkStore()
    sinks.write(identity(0), [b"0"])
    sinks.stop()
    table = JsonTable(sinks.disk, SINKS_FILE)
    content = table.load()
    assert content is not None
    del content["lastNoteAt"]
    table.save(content)
    after = sinks.successor(sinks.disk)
    assert not after.batches.has_unsaved
    assert after.publish(identity(0)).is_repeat


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
    assert sinks.store.append_group([run_of(b"x")], b"a note of another writer").ok
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


@pytest.mark.parametrize("step_ms", [-315_360_000_000, -20_000, 20_000, 315_360_000_000])
def test_a_wall_clock_that_is_set_removes_no_job(step_ms: int) -> None:
    sinks = SinkStore(limits={"sinks_max": 1, "once_keep_ms": 10_000})
    job = identity(0, "job", "job", once=True)
    sinks.write(job, [b"x"])
    sinks.clock.set_wall(sinks.clock.wall_ms() + step_ms)
    sinks.batches.save()
    assert sinks.publish(job).is_repeat
    with pytest.raises(LimitReached):
        sinks.write(identity(0), [b"x"])
    sinks.clock.advance(10_001)
    sinks.write(identity(0), [b"x"])


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
