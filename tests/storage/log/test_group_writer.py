"""Groups on two threads: the same bytes as on one, and the same queues as a walk would build."""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.config import StoreConfig
from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.runtime.clock import SystemClock
from broker_core.runtime.worker import InlineWorker, ThreadWorker
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet
from broker_core.storage.files.posix_file_system import PosixFile, PosixFileSystem
from broker_core.storage.log import append_scan_cache, group_writer
from broker_core.storage.log.append_scan_cache import AppendScanCache
from broker_core.storage.log.commit_log import SCRATCH_SIZE, CommitLog, TemplateRun
from broker_core.storage.log.group_writer import GroupWriter, NumberedRun, Stamp
from broker_core.storage.log.log_walk import Step, walk_step
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR, SegmentSequence
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.codec.codec_backends import HOST
from tests.store.small_store import keyed, new_disk, run_of

SIZE = 8 << 20
STAMP = Stamp(9, HOST)
# A machine that is busy with other things is not one that has no memory left.
PATIENT: dict[str, Any] = {"page_cache_busy_timeout_ms": 120_000, "sync_flush_timeout_ms": 120_000}
NO_DELAYS = memoryview(b"").cast("B")


@pytest.fixture(autouse=True)
def _scans(monkeypatch: pytest.MonkeyPatch) -> None:
    """With either codec."""
    monkeypatch.setattr(append_scan_cache, "SCANS_PAY", True)


@pytest.fixture
def helper() -> Iterator[ThreadWorker]:
    started = ThreadWorker("test-helper", lambda call: None)
    yield started
    started.stop()


def random_runs(seed: int, count: int) -> list[TemplateRun]:
    """Of several topics; one record is larger than the buffers of the writer."""
    rng = random.Random(seed)
    runs = []
    for number in range(count):
        bodies = [os.urandom(rng.choice((10, 300, 5_000))) for _ in range(rng.randint(1, 60))]
        if number == count // 2:
            bodies.insert(1, os.urandom(SCRATCH_SIZE))
        runs.append(run_of(*bodies, topic=b"T%d" % rng.randrange(3)))
    return runs


def new_log(root: Path, size: int = SIZE) -> CommitLog:
    (root / COMMIT_LOG_DIR).mkdir(parents=True)
    return CommitLog(SegmentSequence(PosixFileSystem(str(root)), size, [], 0, InlineWorker()), 0)


def numbered(runs: list[TemplateRun]) -> list[NumberedRun]:
    """As the appender numbers them: each run goes on where the last one of its queue ended."""
    next_of: dict[Any, int] = {}
    found = []
    for run in runs:
        [queue] = run.queues
        found.append(NumberedRun(run, array("q", [next_of.get(queue, 0)])))
        next_of[queue] = next_of.get(queue, 0) + record_count(run)
    return found


def record_count(run: TemplateRun) -> int:
    count = at = 0
    while at < len(run.records):
        at += int.from_bytes(run.records[at : at + 4], "big")
        count += 1
    return count


def content(log: CommitLog) -> list[bytes]:
    return [bytes(segment.view[: segment.wrote]) for segment in log.segments.all]


@pytest.mark.parametrize("seed", range(6))
def test_two_threads_write_what_one_does(
    tmp_path: Path, helper: ThreadWorker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    runs = random_runs(seed, 300)
    monkeypatch.setattr(group_writer, "SHARED_SIZE_MIN", 1 << 20)
    found = []
    for name, shares in (("one", False), ("two", True)):
        log = new_log(tmp_path / name)
        log.reserve_until(sum(len(run.records) for run in runs) + 3 * SIZE)
        slices: list[int] = []
        again = numbered(runs)
        if shares:
            writer = GroupWriter(
                log, AppendScanCache(NO_DELAYS, index_tags=False), helper,
                lambda log=log, slices=slices: slices.append(log.position),  # type: ignore[misc]
            )  # fmt: skip
            writer.write(again, STAMP)
        else:
            log.begin_slices()
            for run, offsets in again:
                log.append_run(run, memoryview(offsets), *STAMP, lambda: None)
        assert len(log.segments.all) > 1, "a file ends within a run"
        assert slices == sorted(slices)
        found.append((content(log), log.position, [list(run.offsets) for run in again]))
    assert found[0] == found[1]


def test_a_run_that_is_not_one_any_more(tmp_path: Path, helper: ThreadWorker) -> None:
    """A staged file was changed: either thread reports it, and the log stays clean."""
    runs = [run_of(*[b"x" * 900] * 200) for _ in range(40)]
    broken = bytearray(runs[30].records)
    broken[4:8] = b"\0\0\0\0"
    runs[30] = TemplateRun(runs[30].queues, broken)
    log = new_log(tmp_path, 64 << 20)
    log.reserve_until(64 << 20)
    writer = GroupWriter(log, AppendScanCache(NO_DELAYS, index_tags=False), helper, lambda: None)
    log._room_for(0)
    with pytest.raises(group_writer.MalformedRecord):
        writer.write(numbered_alike(runs), STAMP)


def numbered_alike(runs: list[TemplateRun]) -> list[NumberedRun]:
    return [NumberedRun(run, array("q", [200 * n])) for n, run in enumerate(runs)]


def test_a_write_that_fails_on_any_thread_ends_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_async: Callable[..., Any]
) -> None:
    """Half a group may be in the log: nothing more is taken, and the next open cuts it off."""

    async def scenario() -> None:
        store = MessageStore.open(tmp_path / "s", StoreConfig(**PATIENT))
        await store.start()
        assert (await store.put(Message("T", b"before"))).ok
        write, left = PosixFile.write, [7]

        def failing(file: PosixFile, start: int, data: memoryview) -> None:
            if file.path.startswith(COMMIT_LOG_DIR):
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(5, "no")
            write(file, start, data)

        monkeypatch.setattr(PosixFile, "write", failing)
        runs = [run_of(*[b"x" * 900] * 1_000) for _ in range(30)]
        result = await store.put_group(runs)
        assert result.status is PutStatus.UNKNOWN_ERROR
        assert store.fenced
        store.close()
        monkeypatch.undo()
        again = MessageStore.open(tmp_path / "s", StoreConfig(**PATIENT))
        assert again.offsets("T", 0) == (0, 1)
        again.close()

    run_async(scenario())


@pytest.mark.parametrize("mode", [FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH])
def test_what_is_kept_is_what_a_walk_finds(
    tmp_path: Path, mode: FlushDiskType, run_async: Callable[..., Any]
) -> None:
    """Groups over several files, and rows that go through a buffer: each record once, the same."""
    config = StoreConfig(flush_disk_type=mode, commit_log_file_size=SIZE, **PATIENT)
    kept: list[Step] = []

    async def scenario() -> None:
        store = MessageStore.open(tmp_path / "s", config)
        await store.start()
        opened = store._opened
        take = opened.dispatcher.written.take

        def taking(position: int, limit: int) -> Step | None:
            step = take(position, limit)
            if step is not None:
                kept.append(step)
            return step

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opened.dispatcher.written, "take", taking)
            for seed in range(3):
                assert (await store.put(Message("T1", b"alone", keys="k"))).ok
                assert (await store.put_group(random_runs(seed, 200))).ok
                many = keyed(*[b"key"] * 9_000, topic=b"T2")
                assert (await store.put_batch(many)).ok
            store.scheduler.flush()
        assert len(kept) > 30
        for step in kept:
            walked = walk_step(
                opened.log.segments, step.start, step.end, check_crc=2, delays=NO_DELAYS
            )
            assert (walked.end, walked.scan is not None) == (step.end, True)
            assert step.scan is not None
            # Its ends are places in a buffer.
            assert step.scan[3:4] + step.scan[5:] == walked.scan[3:4] + walked.scan[5:]  # type: ignore[index]
        walk = ConsumeQueueSet(new_disk(), 60_000)
        again = LogDispatcher(
            opened.log, walk, None, 0, clock=SystemClock(), delays=NO_DELAYS, slice_size=8 << 20
        )
        again.dispatch(opened.log.position, opened.log.position)
        assert len(walk) == len(opened.queues)
        for queue in opened.queues:
            low, high = queue.min_offset, queue.max_offset
            assert high - low > 2
            assert walk.queue(queue.key).read(0, high + 9) == queue.read(0, high + 9)
        store.close()

    run_async(scenario())
