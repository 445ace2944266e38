"""Staging: invisible, verified at publication, limited, expiring, surviving a restart."""

from __future__ import annotations

import numpy as np
import pytest

from broker_core.codec.native import body_crc
from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import BatchIdentity
from broker_core.errors import DiskFull, RemoteError, StagingRefused
from broker_core.protocol_codes import ResponseCode
from broker_core.storage.staging.staging_area import (
    STAGING_DIR,
    StagingArea,
    encode_template,
)
from broker_core.store.message_store import MessageStore
from tests.codec.codec_backends import batch_of
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import bodies, new_disk, numbered, open_small, run_of

HOUR_MS = 3_600_000


def area(disk: SimulatedDisk, size_max: int = 1 << 20, expiry_ms: int = HOUR_MS) -> StagingArea:
    return StagingArea(disk, disk.clock, size_max, expiry_ms)


def staged(store: MessageStore, *values: bytes, topic: bytes = b"T") -> StagedPart:
    staging_id = store.staging.begin()
    store.staging.append(staging_id, run_of(*values, topic=topic), len(values))
    return store.staging.seal(staging_id)


class TestPublishing:
    def test_several_batches_become_one_group(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        batches = [staged(store, b"a", b"b"), staged(store, b"c", topic=b"U"), staged(store, b"d")]
        assert store.queues() == []
        assert store.log_range == (0, 0)
        result = store.publish_now(batches, b"note")
        assert result.ok
        assert result.message_count == 4
        assert bodies(store, "T") == [b"a", b"b", b"d"]
        assert bodies(store, "U") == [b"c"]
        assert store.staging.size == 0
        assert not any(path.startswith(STAGING_DIR) for path in disk.files())

    def test_a_batch_of_many_blocks(self) -> None:
        store = open_small(new_disk(), commit_log_file_size=64 << 10)
        staging_id = store.staging.begin()
        for body in numbered(100):
            store.staging.append(staging_id, run_of(body), 1)
        assert store.publish_now([store.staging.seal(staging_id)]).ok
        assert bodies(store, "T") == numbered(100)

    def test_an_empty_batch(self) -> None:
        store = open_small(new_disk())
        assert store.publish_now([store.staging.seal(store.staging.begin())]).ok
        assert store.publish_now([]).ok

    def test_ids_cannot_be_guessed(self) -> None:
        staging = area(new_disk())
        ids = {staging.begin() for _ in range(50)}
        assert len(ids) == 50
        assert all(len(staging_id) == 32 for staging_id in ids)

    def test_a_batch_is_published_once(self) -> None:
        store = open_small(new_disk())
        batch = staged(store, b"a")
        with pytest.raises(StagingRefused, match="twice"):
            store.publish_now([batch, batch])
        assert store.publish_now([batch]).ok
        with pytest.raises(StagingRefused, match="unknown"):
            store.publish_now([batch])
        assert bodies(store, "T") == [b"a"]

    def test_a_refused_group_keeps_its_batches(self) -> None:
        store = open_small(new_disk(), group_size_max=500)
        batch = staged(store, *[b"x" * 50] * 10)
        assert not store.publish_now([batch]).ok
        assert store.staging.size == batch.size
        assert store.staging.drop(batch.staging_id)
        assert store.staging.size == 0

    def test_an_open_batch_is_not_published(self) -> None:
        store = open_small(new_disk())
        staging_id = store.staging.begin()
        store.staging.append(staging_id, run_of(b"a"), 1)
        with pytest.raises(StagingRefused, match="open"):
            store.publish_now([StagedPart(staging_id, 1, 1, 1)])
        batch = store.staging.seal(staging_id)
        with pytest.raises(StagingRefused):
            store.staging.append(staging_id, run_of(b"b"), 1)
        assert store.publish_now([batch]).ok

    def test_a_known_checksum_of_the_records_gives_the_same_part(self) -> None:
        store = open_small(new_disk())
        run = run_of(b"a", b"b")
        ids = [store.staging.begin(), store.staging.begin()]
        store.staging.append(ids[0], run, 2)
        store.staging.append(ids[1], run, 2, body_crc(run.records))
        plain, known = (store.staging.seal(staging_id) for staging_id in ids)
        assert plain.checksum == known.checksum
        assert store.publish_now([known]).ok
        assert bodies(store, "T") == [b"a", b"b"]

    def test_records_that_changed_after_their_checksum_are_not_published(self) -> None:
        store = open_small(new_disk())
        run = run_of(b"a", b"b")
        staging_id = store.staging.begin()
        store.staging.append(staging_id, run, 2, body_crc(run.records) ^ 1)
        with pytest.raises(StagingRefused):
            store.publish_now([store.staging.seal(staging_id)])


class TestLimits:
    def test_the_size_limit_counts_open_and_sealed_batches(self) -> None:
        disk = new_disk()
        run = run_of(b"x" * 200)
        staging = area(disk, size_max=1_000)
        first, second = staging.begin(), staging.begin()
        staging.append(first, run, 1)
        staging.append(second, run, 1)
        size = staging.size
        with pytest.raises(StagingRefused, match="staging_size_max=1000"):
            staging.append(first, run, 1)
        assert staging.size == size
        staging.seal(second)
        with pytest.raises(StagingRefused):
            staging.append(first, run, 1)
        assert staging.drop(second)
        staging.append(first, run, 1)
        assert staging.size == size

    def test_a_full_disk_is_said_so(self) -> None:
        disk = new_disk(space_limit=500)
        staging = area(disk)
        staging_id = staging.begin()
        with pytest.raises(DiskFull):
            staging.append(staging_id, run_of(b"x" * 600), 1)
        disk.space_limit = None
        staging.append(staging_id, run_of(b"ok"), 1)
        assert staging.seal(staging_id).record_count == 1

    def test_a_failed_append_leaves_a_batch_that_can_go_on(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        staging_id = store.staging.begin()
        store.staging.append(staging_id, run_of(b"a"), 1)
        disk.space_limit = sum(map(len, disk.tree().values())) + 60
        with pytest.raises(DiskFull):
            store.staging.append(staging_id, run_of(b"b" * 300), 1)
        disk.space_limit = None
        batch = store.staging.seal(staging_id)
        try:
            assert store.publish_now([batch]).ok
        except StagingRefused:
            # Half a block may be left behind; then the whole batch must be refused.
            assert store.log_range == (0, 0)

    def test_untouched_batches_expire(self) -> None:
        disk = new_disk()
        staging = area(disk)
        draft, sealed, fresh = staging.begin(), staging.begin(), staging.begin()
        staging.append(sealed, run_of(b"a"), 1)
        staging.seal(sealed)
        disk.clock.advance(HOUR_MS)
        assert staging.expire() == []
        staging.append(fresh, run_of(b"a"), 1)
        disk.clock.advance(1)
        assert sorted(staging.expire()) == sorted([draft, sealed])
        assert disk.files() == [f"{STAGING_DIR}/{fresh}"]
        with pytest.raises(StagingRefused):
            staging.append(draft, run_of(b"a"), 1)

    def test_drafts_of_a_batch_expire_together(self) -> None:
        disk = new_disk()
        staging = area(disk)
        who = BatchIdentity("S", 7, "run-1")
        sealed, open_one = staging.begin(who), staging.begin(who)
        others = [
            staging.begin(who._replace(batch=8)),
            staging.begin(who._replace(run="run-2")),
            staging.begin(who._replace(sink="T")),
            staging.begin(),
        ]
        staging.seal(sealed)
        disk.clock.advance(HOUR_MS // 2)
        staging.append(open_one, run_of(b"a"), 1)
        disk.clock.advance(HOUR_MS // 2 + 1)
        assert sorted(staging.expire()) == sorted(others)
        third = staging.begin(who)
        disk.clock.advance(HOUR_MS // 2 + 1)
        assert staging.expire() == []
        disk.clock.advance(HOUR_MS // 2)
        assert sorted(staging.expire()) == sorted([sealed, open_one, third])

    def test_a_kept_draft_without_a_writer_does_not_expire(self) -> None:
        disk = new_disk()
        staging = area(disk)
        staging_id = staging.begin(BatchIdentity("S", 7, "run-1"))
        staging.seal(staging_id)
        staging.keep([staging_id])
        draft = staging.find(staging_id)
        assert draft is not None
        draft.disown()
        assert list(staging.drafts()) == []
        disk.clock.advance(2 * HOUR_MS)
        assert staging.expire() == []
        staging.allow_expiry([staging_id])
        assert staging.expire() == [staging_id]
        assert staging.find(staging_id) is None

    def test_the_clock_of_a_store_expires_them(self) -> None:
        disk = new_disk()
        store = open_small(disk, staging_expiry_ms=60_000)
        batch = staged(store, b"a")
        disk.clock.advance(60_001)
        store.scheduler.tick()
        with pytest.raises(StagingRefused, match="expired"):
            store.publish_now([batch])


class TestRestart:
    def test_sealed_batches_survive_a_close_and_a_kill(self) -> None:
        for end in ("close", "kill"):
            disk = new_disk()
            store = open_small(disk)
            batch = staged(store, b"a", b"b")
            if end == "close":
                store.close()
            store = open_small(disk.kill())
            assert store.staging.size == batch.size
            assert store.publish_now([batch]).ok
            assert bodies(store, "T") == [b"a", b"b"]

    def test_after_a_power_cut_a_batch_is_whole_or_refused(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        batch = staged(store, b"x" * 2_000, b"y" * 2_000)
        outcomes = set()
        for state in disk.crash_states(limit=60):
            again = open_small(disk.reboot(state))
            try:
                outcomes.add(again.publish_now([batch]).ok)
                assert bodies(again, "T") == [b"x" * 2_000, b"y" * 2_000]
            except StagingRefused:
                outcomes.add(False)
                assert again.log_range == (0, 0)
        assert outcomes == {True, False}

    def test_old_batches_expire_after_a_restart(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        batch = staged(store, b"a")
        store = open_small(disk.kill())
        disk.clock.advance(HOUR_MS + 1)
        assert store.staging.expire() == [batch.staging_id]

    def test_growth_is_reported_with_the_total(self) -> None:
        told: list[int] = []
        staging = area(new_disk())
        staging.report_growth(told.append)
        first, second = staging.begin(), staging.begin()
        staging.append(first, run_of(b"a" * 100), 1)
        size = told[-1]
        staging.seal(first)
        staging.append(second, run_of(b"a" * 100), 1)
        assert told == [size, 2 * size]
        staging.grow(second, 5_000)
        assert told[-1] == size + 5_000
        staging.close()
        assert told[-1] == 0

    def test_foreign_files_are_left_alone(self) -> None:
        disk = new_disk()
        disk.put(f"{STAGING_DIR}/notes.txt", b"hello")
        disk.put(f"{STAGING_DIR}/directory/file", b"hello")
        store = open_small(disk)
        assert store.staging.size == 0
        disk.clock.advance(2 * HOUR_MS)
        assert store.staging.expire() == []
        assert disk.content(f"{STAGING_DIR}/notes.txt") == b"hello"


def test_a_run_of_several_queues() -> None:
    store = open_small(new_disk())
    batch = batch_of(
        b"a", b"b", b"c", queues=((b"T", 0), (b"T", 1)), queue_index=np.array([1, 0, 1], np.int32)
    )
    staging_id = store.staging.begin()
    store.staging.append(staging_id, encode_template(batch), 3)
    assert store.publish_now([store.staging.seal(staging_id)]).ok
    assert bodies(store, "T", 0) == [b"b"]
    assert bodies(store, "T", 1) == [b"a", b"c"]


def test_the_error_is_the_same_on_both_sides() -> None:
    raised = StagingRefused("it is gone")
    answered = RemoteError.for_code(raised.response_code, str(raised))
    assert type(answered) is StagingRefused
    for error in (raised, answered):
        assert (error.code, error.remark) == (ResponseCode.STAGING_REFUSED, "it is gone")
        assert str(error) == "it is gone"
        assert not error.retriable
