"""The commit log: the roll rule, appends over several files, spans."""

from __future__ import annotations

import errno
from array import array
from typing import Any

import pytest

from broker_core.codec.records.message_record import decode_record
from broker_core.errors import DiskFull
from broker_core.runtime.worker import InlineWorker
from broker_core.storage.log.commit_log import LARGE_SIZE, SCRATCH_SIZE, CommitLog
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR, SegmentSequence
from broker_core.storage.log.write_buffer_pool import WriteBufferPool
from tests.codec.codec_backends import HOST, batch_of
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk, run_of

OVERHEAD = 91 + len(b"TopicTest") + 20


def new_log(
    size: int = 4096, pool: WriteBufferPool | None = None
) -> tuple[CommitLog, SimulatedDisk]:
    disk = new_disk()
    disk.make_dir(COMMIT_LOG_DIR)
    return CommitLog(SegmentSequence(disk, size, [], 0, InlineWorker(), pool=pool), 0), disk


def append(log: CommitLog, *sizes: int, offsets: array[int] | None = None, **options: Any):
    """Records of these sizes, headers included."""
    batch = batch_of(*(bytes([n % 251 + 1]) * (size - OVERHEAD) for n, size in enumerate(sizes)))
    together = bool(options.get("together"))
    log.reserve(sum(sizes), sum(sizes) if together else max(sizes), 1 if together else len(sizes))
    numbers = array("q", [0]) if offsets is None else offsets
    return log.append(batch, memoryview(numbers), 1_700_000_000_000, sum(sizes), **options)


def records(log: CommitLog) -> list[tuple[int, int]]:
    """(position, size) of every record, by reading the files."""
    found = []
    for segment in log.segments.all:
        at = 0
        while at < segment.wrote:
            size = int.from_bytes(segment.view[at : at + 4], "big")
            if int.from_bytes(segment.view[at + 4 : at + 8], "big") == 0xCBD43194:
                assert size == segment.size - at
                break
            decode_record(segment.view, at, limit=at + size, position=segment.base + at)
            found.append((segment.base + at, size))
            at += size
    return found


class TestRollRule:
    """4096-byte file, 3900 bytes used: 196 are left."""

    def test_a_record_of_188_fits(self) -> None:
        log, _ = new_log()
        append(log, 3900)
        assert append(log, 188) == (3900, 4088)

    def test_one_of_189_does_not(self) -> None:
        log, disk = new_log()
        append(log, 3900)
        assert append(log, 189) == (4096, 4285)
        blank = disk.content("commitlog/" + "0" * 20)[3900:]
        assert blank[:8].hex(" ") == "00 00 00 c4 cb d4 31 94"
        assert not any(blank[8:])

    def test_the_blank_with_217_bytes_left(self) -> None:
        log, disk = new_log()
        append(log, 4096 - 217)
        append(log, 210)
        data = disk.content("commitlog/" + "0" * 20)
        assert data[-217:-209].hex(" ") == "00 00 00 d9 cb d4 31 94"

    def test_the_smallest_blank(self) -> None:
        log, disk = new_log()
        append(log, 4088)
        append(log, 200)
        data = disk.content("commitlog/" + "0" * 20)
        assert data[4088:].hex(" ") == "00 00 00 08 cb d4 31 94"

    def test_a_batch_together_moves_as_a_whole(self) -> None:
        log, _ = new_log()
        append(log, 3500)
        assert append(log, 200, 200, 200, together=True) == (4096, 4696)
        assert append(log, 200, 200)[0] == 4696


def test_a_batch_continues_in_the_next_files() -> None:
    log, disk = new_log()
    numbers = array("q", [7])
    start, end = append(log, *[1000] * 11, offsets=numbers)
    assert start == 0
    assert list(numbers) == [18]
    assert [position for position, _ in records(log)] == [
        0, 1000, 2000, 3000, 4096, 5096, 6096, 7096, 8192, 9192, 10192,
    ]  # fmt: skip
    assert end == log.position == 11192
    assert len(disk.files()) >= 3


def test_the_reservation_is_enough_for_every_size() -> None:
    for size in range(OVERHEAD, 4089, 61):
        log, disk = new_log()
        append(log, 150)
        batch = batch_of(*[bytes(size - OVERHEAD)] * 9)
        log.reserve(9 * size, size, 9)
        disk.fail(disk.operation_count + 1, errno.ENOSPC, sticky=True, methods={"create"})
        log.append(batch, memoryview(array("q", [0])), 0, 9 * size)
        assert len(records(log)) == 10


def test_a_reservation_that_fails_writes_nothing() -> None:
    log, disk = new_log()
    append(log, 150)
    tree = disk.tree()
    disk.space_limit = sum(map(len, tree.values())) + 4096
    with pytest.raises(DiskFull):
        log.reserve(9_000, 1_000, 9)
    with pytest.raises(DiskFull):
        log.reserve_until(5 * 4096)
    assert disk.tree() == tree
    assert log.position == 150


@pytest.mark.parametrize("pooled", [False, True])
def test_large_appends_equal_small_ones(pooled: bool) -> None:
    """Large batches go through a buffer and plain writes; the bytes must be the same."""
    size = 1 << 20
    sizes = [5_000] * 100 + [SCRATCH_SIZE + 10, 300, SCRATCH_SIZE - 8, 5_000] + [700] * 500
    assert sum(sizes) > 2 * LARGE_SIZE
    trees = []
    for together in (True, False):
        log, disk = new_log(size, WriteBufferPool(9, size) if pooled else None)
        numbers = array("q", [0])
        bodies = [bytes([n % 251 + 1]) * (s - OVERHEAD) for n, s in enumerate(sizes)]
        groups = [bodies] if together else [[body] for body in bodies]
        for group in groups:
            total = sum(map(len, group)) + OVERHEAD * len(group)
            log.reserve(total, max(map(len, group)) + OVERHEAD, len(group))
            log.append(batch_of(*group), memoryview(numbers), 5, total)
        for segment in log.segments.all:
            segment.commit_bytes(0, segment.wrote)
            segment.committed_to(segment.wrote)
        assert len(records(log)) == len(sizes)
        trees.append({p: c for p, c in disk.tree().items() if int(p[-20:]) < log.position})
    assert trees[0] == trees[1]


def test_runs_are_given_their_places() -> None:
    log, _ = new_log()
    append(log, 3900)
    run = run_of(*[b"x" * 1000] * 5)
    numbers = array("q", [40])
    log.reserve_until(3 * 4096)
    calls: list[int] = []
    log.append_run(run, memoryview(numbers), 9, HOST, lambda: calls.append(log.position))
    assert list(numbers) == [45]
    found = []
    for position, size in records(log)[1:]:
        segment = log.segments.find(position)
        assert segment is not None
        at = position - segment.base
        found.append(decode_record(segment.view, at, limit=at + size, position=position))
    assert [record.queue_offset for record in found] == [40, 41, 42, 43, 44]
    assert {record.store_timestamp for record in found} == {9}
    assert found[0].physical_offset == 4096


def test_spans_are_the_map_or_bytes() -> None:
    log, _ = new_log()
    append(log, *[1000] * 8)
    hot = log.spans(500, 8_000, cold_below=0)
    assert [start for start, _ in hot] == [0, 4096]
    assert all(isinstance(data, memoryview) for _, data in hot)
    cold = log.spans(500, 8_000, cold_below=8_000)
    assert [(start, len(data)) for start, data in cold] == [(500, 3596), (4096, 3904)]
    assert all(isinstance(data, bytes) for _, data in cold)
    for (_, view), (start, data) in zip(hot, cold, strict=True):
        assert bytes(view[start % 4096 : start % 4096 + len(data)]) == data
    assert log.spans(log.position, log.position + 50, cold_below=0) == []
    assert log.spans(1 << 40, (1 << 40) + 1, cold_below=0) == []
