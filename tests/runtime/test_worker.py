"""Workers: jobs in order, reports on the owner's thread, nothing lost at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.runtime.worker import InlineWorker, ThreadWorker, WorkerSlot


def fails() -> None:
    raise OSError(5, "no")


class Reports:
    """What a worker reported, and on which thread."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, str]] = []
        self.threads: set[str] = set()

    def __call__(self, result: Any, error: BaseException | None) -> None:
        self.seen.append((result, type(error).__name__))
        self.threads.add(threading.current_thread().name)


def test_an_inline_worker_does_all_at_once() -> None:
    worker, reports = InlineWorker(), Reports()
    worker.submit(lambda: 1, reports)
    worker.submit(fails, reports)
    assert reports.seen == [(1, "NoneType"), (None, "OSError")]
    assert worker.run(lambda: 2) == 2
    with pytest.raises(OSError, match="no"):
        worker.run(fails)
    worker.stop()


def test_a_mistake_in_an_inline_job_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        InlineWorker().submit(lambda: 1 // 0, Reports())


def test_a_thread_reports_in_order_on_its_owner(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        reports, done = Reports(), asyncio.Event()
        worker = ThreadWorker("test-worker", asyncio.get_running_loop().call_soon_threadsafe)
        jobs: list[str] = []
        for number in range(50):
            job = lambda number=number: jobs.append(threading.current_thread().name) or number  # noqa: E731
            worker.submit(job, reports)
        worker.submit(fails, reports)
        worker.submit(lambda: 1 // 0, lambda *report: (reports(*report), done.set()))
        await done.wait()
        assert [result for result, _ in reports.seen[:50]] == list(range(50))
        assert [kind for _, kind in reports.seen[50:]] == ["OSError", "ZeroDivisionError"]
        assert set(jobs) == {"test-worker"}
        assert reports.threads == {threading.current_thread().name}
        worker.stop()

    run_async(scenario())


def test_running_waits_for_what_was_submitted(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        worker = ThreadWorker("test-worker", asyncio.get_running_loop().call_soon_threadsafe)
        order: list[int] = []
        for number in range(5):
            worker.submit(lambda number=number: order.append(number), Reports())
        assert worker.run(lambda: list(order)) == [0, 1, 2, 3, 4]
        with pytest.raises(OSError, match="no"):
            worker.run(fails)
        with pytest.raises(ZeroDivisionError):
            worker.run(lambda: 1 // 0)
        assert worker.run(lambda: "still alive") == "still alive"
        worker.stop()

    run_async(scenario())


def test_stopping_finishes_the_jobs_and_their_reports(run_async: Callable[..., Any]) -> None:
    reports = Reports()

    async def scenario() -> None:
        gate = threading.Event()
        worker = ThreadWorker("test-worker", asyncio.get_running_loop().call_soon_threadsafe)
        worker.submit(gate.wait, reports)
        for number in range(10):
            worker.submit(lambda number=number: number, reports)
        gate.set()
        worker.stop()
        assert [result for result, _ in reports.seen] == [True, *range(10)]
        await asyncio.sleep(0)

    run_async(scenario())
    assert len(reports.seen) == 11, "and each only once"
    assert reports.threads == {threading.current_thread().name}


def test_a_worker_outlives_the_loop_of_its_owner(run_async: Callable[..., Any]) -> None:
    workers: list[ThreadWorker] = []
    reports, gate = Reports(), threading.Event()

    async def scenario() -> None:
        worker = ThreadWorker("test-worker", asyncio.get_running_loop().call_soon_threadsafe)
        worker.submit(gate.wait, reports)
        workers.append(worker)

    run_async(scenario())
    gate.set()
    assert workers[0].run(lambda: 5) == 5
    workers[0].stop()
    assert reports.seen == [(True, "NoneType")]


def test_a_slot_finishes_with_one_worker_before_the_next(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        reports = Reports()
        slot = WorkerSlot(InlineWorker())
        slot.submit(lambda: "inline", reports)
        slot.exchange(ThreadWorker("test-worker", asyncio.get_running_loop().call_soon_threadsafe))
        slot.submit(lambda: threading.current_thread().name, reports)
        slot.exchange(InlineWorker())
        assert slot.run(lambda: threading.current_thread().name) == "MainThread"
        slot.stop()
        assert [result for result, _ in reports.seen] == ["inline", "test-worker"]

    run_async(scenario())


def test_what_the_last_reports_bring_up_is_done_at_once() -> None:
    """After the end no thread would run it: the mark of a failed sync would be lost."""
    seen: list[object] = []
    worker = ThreadWorker("rmq-test", lambda call: None)

    def first_done(result: object, error: BaseException | None) -> None:
        seen.append((result, error))
        worker.submit(lambda: "second", lambda result, error: seen.append((result, error)))
        worker.submit(lambda: 1 // 0, lambda result, error: seen.append((result, type(error))))
        seen.append(worker.run(lambda: "third"))

    worker.submit(lambda: "first", first_done)
    worker.stop()
    assert seen == [("first", None), ("second", None), (None, ZeroDivisionError), "third"]
    worker.stop()
