"""The flush service: group commit, real-time flush, the write-buffer pool, fencing, the state."""

from __future__ import annotations

import errno

import pytest

from broker_core.errors import DiskFull, StoreFenced
from broker_core.protocol_codes import FlushDiskType
from broker_core.storage.state.store_state import FLAG_SYNC_FAILED
from tests.fakes.manual_worker import ManualWorker
from tests.flush.flushed_log import FILE_SIZE, FlushedLog

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}
POOL = {"transient_pool_enable": True, "transient_pool_size": 2}


class TestGroupCommit:
    def test_one_sync_covers_all_appends_made_during_the_last_one(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker)
        released: list[int] = []
        ends = [log.append() for _ in range(10)]
        for end in ends:
            log.service.flushed.when(end, lambda failure, end=end: released.append(end))
        assert worker.waiting == 1
        assert log.log_syncs() == 0
        worker.run_next()
        assert released == ends[:1], "the first sync was asked for by the first append"
        worker.run_next()
        assert released == ends, "the second covers everyone else"
        assert worker.waiting == 0
        assert log.log_syncs() == 2

    def test_nothing_is_synced_twice(self) -> None:
        log = FlushedLog()
        end = log.append()
        assert log.service.flushed.position == end
        before = log.log_syncs()
        log.service.tick()
        log.service.flush_soon()
        log.service.tick()
        assert log.log_syncs() == before == 1

    def test_a_job_over_two_files_syncs_both(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker)
        log.append(200)
        worker.run_all()
        for _ in range(FILE_SIZE // 200 + 1):
            log.append(200)
        before = log.log_syncs()
        worker.run_all()
        assert log.service.flushed.position == log.log.position > FILE_SIZE
        assert log.log_syncs() - before == 2 + 1, "first job: old file; second: both"

    def test_many_appends_wait_in_order(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker)
        seen = []
        for number in range(50):
            end = log.append()
            log.service.flushed.when(end, lambda _, n=number: seen.append(n))
            if number % 7 == 0:
                worker.run_next()
        worker.run_all()
        assert seen == list(range(50))

    def test_the_next_sync_runs_while_many_are_woken(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker)
        under_way: list[int] = []

        def again(failure: BaseException | None) -> None:
            assert failure is None
            under_way.append(worker.waiting)
            log.service.flushed.when(log.append(), again)

        log.append()
        for _ in range(200):
            log.service.flushed.when(log.append(), again)
        worker.run_next()
        assert (under_way, worker.waiting) == ([], 1)
        worker.run_next()
        assert under_way == [0] * 100 + [1] * 100, "half of them append, then their sync begins"
        for _ in range(3):
            before = len(under_way)
            worker.run_next()
            assert under_way[before:] == [1] * 100, "from now on there are two groups in turns"

    def test_on_a_slow_disk_many_share_one_sync(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker)
        under_way: list[int] = []

        def again(_: BaseException | None) -> None:
            under_way.append(worker.waiting)
            log.service.flushed.when(log.append(), again)

        log.append()
        for _ in range(200):
            log.service.flushed.when(log.append(), again)
        for _ in range(5):
            log.disk.clock.advance(3)
            worker.run_next()
        assert under_way == [0] * 4 * 200

    def test_few_waiters_share_one_sync(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker)
        under_way: list[int] = []

        def again(_: BaseException | None) -> None:
            under_way.append(worker.waiting)
            log.service.flushed.when(log.append(), again)

        for _ in range(60):
            log.service.flushed.when(log.append(), again)
        for _ in range(5):
            worker.run_next()
        assert under_way == [0] * (1 + 4 * 60)

    def test_a_waiter_that_raises_in_an_overlapped_wake_up_does_not_stop_others(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker)
        woken: list[int] = []

        def wait(number: int) -> None:
            def waiter(_: BaseException | None) -> None:
                woken.append(number)
                if number in (30, 170):
                    raise ZeroDivisionError("a waiter's own mistake")

            log.service.flushed.when(log.append(), waiter)

        log.append()
        for number in range(200):
            wait(number)
        worker.run_next()
        with pytest.raises(ZeroDivisionError):
            worker.run_next()
        assert woken == list(range(200))
        wait(200)
        worker.run_all()
        assert woken == list(range(201))

    def test_a_waiter_that_raises_does_not_stop_others(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker)
        woken: list[str] = []

        def raises(_: BaseException | None) -> None:
            woken.append("raises")
            raise ZeroDivisionError("a waiter's own mistake")

        first = log.append()
        log.service.flushed.when(first, raises)
        log.service.flushed.when(first, lambda failure: woken.append(f"same sync {failure}"))
        with pytest.raises(ZeroDivisionError):
            worker.run_next()
        assert log.service.flushed.position == first
        assert woken == ["raises", "same sync None"]
        second = log.append()
        log.service.flushed.when(second, lambda failure: woken.append(f"next sync {failure}"))
        assert worker.waiting == 1, "the next append is flushed as ever"
        worker.run_all()
        assert log.service.flushed.position == second
        assert log.service.failure is None
        assert woken == ["raises", "same sync None", "next sync None"]


class TestRealTimeFlush:
    def test_interval_pages_and_thorough_interval(self) -> None:
        log = FlushedLog(**ASYNC, flush_interval_ms=500, flush_least_pages=1,
                         flush_thorough_interval_ms=10_000)  # fmt: skip
        clock, flushed = log.disk.clock, log.service.flushed
        end = log.append(200)
        assert log.service.committed_position == end, "readable at once"
        clock.advance(499)
        log.service.tick()
        assert flushed.position == 0
        clock.advance(1)
        log.service.tick()
        assert flushed.position == 0, "less than a page waits for the thorough interval"
        for _ in range(25):
            log.append(200)
        reached = flushed.position
        assert reached > FILE_SIZE, "the interval is over and a page is full"
        clock.advance(9_999)
        log.service.tick()
        assert flushed.position == reached
        clock.advance(1)
        log.service.tick()
        assert flushed.position == log.log.position

    def test_a_put_wakes_it_only_when_it_is_not_timed(self) -> None:
        for timed in (True, False):
            log = FlushedLog(**ASYNC, flush_timed=timed, flush_least_pages=0)
            log.append()
            assert (log.service.flushed.position > 0) is not timed

    def test_flush_soon_ignores_interval_and_pages(self) -> None:
        log = FlushedLog(**ASYNC)
        end = log.append()
        assert log.service.flushed.position == 0
        log.service.flush_soon()
        assert log.service.flushed.position == end

    def test_flush_soon_behind_a_running_job_is_not_forgotten(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker, **ASYNC)
        log.append()
        log.service.flush_soon()
        end = log.append()
        log.service.flush_soon()
        assert worker.waiting == 1
        worker.run_all()
        assert log.service.flushed.position == end


class TestWriteBufferPool:
    def test_appends_are_in_memory_until_they_are_committed(self) -> None:
        log = FlushedLog(**ASYNC, **POOL)
        path = "commitlog/00000000000000000000"
        end = log.append()
        log.disk.clock.advance(199)
        log.service.tick()
        assert log.service.committed_position == 0
        assert not any(log.disk.content(path))
        log.disk.clock.advance(1)
        log.service.tick()
        assert log.service.committed_position == end
        assert any(log.disk.content(path)[:end])
        assert log.service.flushed.position == 0

    def test_a_put_wakes_the_commit_when_it_pays(self) -> None:
        log = FlushedLog(**ASYNC, **POOL, commit_least_pages=1)
        log.append()
        assert log.service.committed_position == 0
        for _ in range(20):
            log.append()
        assert log.service.committed_position > FILE_SIZE

    def test_a_full_and_committed_file_gives_its_buffer_back(self) -> None:
        log = FlushedLog(**POOL)
        assert log.pool is not None
        assert log.pool.available == 2
        log.append()
        assert log.pool.available == 1
        for _ in range(100):
            log.append()
        assert log.pool.available == 1
        assert log.service.flushed.position == log.log.position

    def test_without_a_free_buffer_appends_go_to_the_map(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker, **POOL)
        for _ in range(60):
            log.append()
        assert [segment.buffered for segment in log.log.segments.all] == [True, True, False]
        worker.run_all()
        assert log.service.flushed.position == log.log.position
        assert not any(segment.buffered for segment in log.log.segments.all)
        assert log.pool is not None
        assert log.pool.available == 2

    def test_fail_fast_refuses_the_file_before_anything_is_written(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker, **POOL, transient_pool_fail_fast=True)
        with pytest.raises(DiskFull, match="write buffer"):
            for _ in range(60):
                log.append()
        end = log.log.position
        with pytest.raises(DiskFull):
            log.append()
        assert log.log.position == end
        assert end < 2 * FILE_SIZE
        worker.run_all()
        log.append()
        worker.run_all()
        assert log.service.flushed.position == log.log.position > 2 * FILE_SIZE

    def test_a_borrowed_buffer_brings_no_old_bytes(self) -> None:
        log = FlushedLog(**POOL)
        for size in (200, 200, 3900, 1000, 3000, 200, 200, 3800, 150):
            log.append(size)
        log.service.flush_all()
        for path in log.disk.files():
            if path.startswith("commitlog/"):
                self._check_tail(log, path)

    @staticmethod
    def _check_tail(log: FlushedLog, path: str) -> None:
        data = log.disk.content(path)
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            magic = int.from_bytes(data[at + 4 : at + 8], "big")
            if magic == 0xCBD43194:
                assert not any(data[at + 8 :]), f"old bytes behind the blank of {path}"
                return
            if size == 0:
                assert not any(data[at:]), f"old bytes behind the end of {path}"
                return
            at += size

    def test_a_kill_loses_only_what_was_not_committed(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker, **ASYNC, **POOL, commit_least_pages=0)
        first = log.append()
        log.disk.clock.advance(200)
        log.service.tick()
        worker.run_all()
        second = log.append()
        assert (log.service.committed_position, second) == (first, 2 * first)
        survivor = log.disk.kill()
        data = survivor.content("commitlog/00000000000000000000")
        assert any(data[:first])
        assert not any(data[first:])


class TestFence:
    def test_a_failed_sync_is_final(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker)
        heard: list[BaseException | None] = []
        progress: list[int] = []
        log.service.flushed.subscribe(lambda: progress.append(log.service.flushed.position))
        first = log.append()
        worker.run_all()
        for _ in range(3):
            log.service.flushed.when(log.append(), heard.append)
        log.disk.fail(log.disk.operation_count + 1, errno.EIO)
        worker.run_all()
        assert [type(failure) for failure in heard] == [StoreFenced] * 3
        assert log.service.flushed.position == first
        assert isinstance(log.service.failure, StoreFenced)
        assert progress[-1] == first
        syncs = log.log_syncs()
        log.append()
        log.service.tick()
        log.service.flush_soon()
        worker.run_all()
        with pytest.raises(StoreFenced):
            log.service.flush_all()
        with pytest.raises(StoreFenced):
            log.service.raise_log_start(0)
        assert log.log_syncs() == syncs, "no sync is ever repeated"
        late: list[BaseException | None] = []
        log.service.flushed.when(log.log.position, late.append)
        assert [type(failure) for failure in late] == [StoreFenced]

    def test_the_failure_is_noted_for_the_next_open(self) -> None:
        log = FlushedLog()
        first = log.append()
        log.disk.fail(log.disk.operation_count + 1, errno.EIO, methods={"sync", "wrote"})
        number = log.disk.operation_count
        log.disk.fail(number + 2, errno.EIO)
        log.append()
        assert log.service.failure is not None
        state = log.state_on_disk(durable=True)
        assert state.flags & FLAG_SYNC_FAILED
        assert state.durable_position == first

    @pytest.mark.parametrize("method", ["sync", "write"])
    def test_flush_all_fences(self, method: str) -> None:
        log = FlushedLog(**ASYNC, **POOL)
        log.append()
        log.disk.fail(log.disk.operation_count + 1, errno.EIO, sticky=True, methods={method})
        with pytest.raises(StoreFenced):
            log.service.flush_all()
        assert log.service.failure is not None

    def test_a_later_job_does_not_run_after_a_failed_one(self) -> None:
        """The owner may submit again before it gets the failure; that sync must not succeed."""
        worker = ManualWorker()
        log = FlushedLog(worker)
        log.append()
        log.disk.fail(log.disk.operation_count + 1, errno.EIO)
        with pytest.raises(StoreFenced):
            log.service.flush_all()
        assert log.service.flushed.position == 0


class TestState:
    def test_a_flush_notes_the_watermark_of_the_one_before_without_a_sync(self) -> None:
        log = FlushedLog()
        first = log.append()
        log.append()
        assert log.state_on_disk().durable_position == first
        assert log.state_on_disk(durable=True).durable_position == 0

    def test_the_watermark_is_synced_at_intervals(self) -> None:
        log = FlushedLog(watermark_sync_interval_ms=200)
        end = log.append()
        log.disk.clock.advance(199)
        log.service.tick()
        assert log.state_on_disk(durable=True).durable_position == 0
        log.disk.clock.advance(1)
        log.service.tick()
        assert log.state_on_disk(durable=True).durable_position == end
        operations = log.disk.operation_count
        log.disk.clock.advance(10_000)
        log.service.tick()
        assert log.disk.operation_count == operations, "nothing new, nothing to sync"

    def test_flush_all_syncs_the_watermark(self) -> None:
        log = FlushedLog(**ASYNC)
        end = log.append()
        log.service.flush_all()
        assert log.state_on_disk(durable=True).durable_position == end

    def test_the_watermark_never_exceeds_the_synced_log(self) -> None:
        """Before every operation, what the state says must be on the disk already."""
        log = FlushedLog(**POOL)

        def check(_: int) -> None:
            durable = log.state_on_disk().durable_position
            for segment in log.log.segments.all:
                path = f"commitlog/{segment.base:020d}"
                end = max(0, min(durable - segment.base, FILE_SIZE))
                assert log.disk.durable_content(path)[:end] == log.disk.content(path)[:end]

        log.disk.on_operation = check
        for size in (200, 300, 3500, 700, 2000, 200, 200, 3800):
            log.append(size)
        log.disk.on_operation = None

    def test_the_log_start_is_durable_before_it_returns(self) -> None:
        log = FlushedLog()
        log.append()
        log.service.raise_log_start(FILE_SIZE)
        assert log.state_on_disk(durable=True).log_start == FILE_SIZE
        log.append()
        assert log.state_on_disk().log_start == FILE_SIZE

    def test_early_write_back_of_group_commit_needs_no_job(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker, calls = ManualWorker(), []
        log = FlushedLog(worker)
        log.append()
        worker.run_all()
        monkeypatch.setattr(worker, "syncs_natively", True)
        monkeypatch.setattr(worker, "submit_sync", lambda call, done: calls.append(call))
        segment = log.log.segments.all[-1]
        monkeypatch.setattr(type(segment.file), "sync_descriptor", property(lambda _: 7))
        flushed = log.service.flushed.position
        log.append()
        log.service.start_writeback()
        log.service.start_writeback()
        # One after the other, without a note: the flush that follows reports what they reach.
        assert calls == [((7,), -1, 0, b"")] * 2
        assert log.service.flushed.position == flushed

    def test_early_write_back_claims_nothing(self) -> None:
        worker = ManualWorker()
        log = FlushedLog(worker, **ASYNC)
        end = log.append()
        log.service.start_writeback()
        worker.run_all()
        assert log.log_syncs() == 1
        assert log.service.flushed.position == 0
        assert log.state_on_disk().durable_position == 0
        log.service.flush_all()
        assert log.service.flushed.position == end
