"""Syncs on the caller's thread: while they are quick, in order with the thread's, never twice."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.runtime.quick_sync_worker import (
    QUICK_S,
    REST_FACTOR,
    QuickCalls,
    QuickSyncWorker,
    start_worker,
)
from broker_core.storage.posix_file_system import sync_descriptor, write_descriptor
from tests.fakes.manual_clock import ManualClock

lanes = pytest.importorskip(
    "broker_core.runtime._system_lane",
    reason="native code is not built: python setup.py build_ext --inplace",
)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A file to sync and one for the note."""
    flags = os.O_CREAT | os.O_RDWR
    descriptors = tuple(os.open(tmp_path / name, flags, 0o600) for name in ("log", "note"))
    yield descriptors[0], descriptors[1]
    for descriptor in descriptors:
        os.close(descriptor)


def served(scenario: Callable[[QuickSyncWorker, ManualClock], Any], run_async: Any) -> None:
    async def run() -> None:
        clock = ManualClock()
        calls = QuickCalls(clock, lambda descriptor: os.fdatasync(descriptor), write_descriptor)
        worker = QuickSyncWorker("rmq-test", asyncio.get_running_loop(), lanes, calls)
        try:
            await scenario(worker, clock)
        finally:
            worker.stop()

    run_async(run())


def test_quick_ones_are_done_at_once(files: tuple[int, int], run_async: Any) -> None:
    log, note = files

    async def scenario(worker: QuickSyncWorker, clock: ManualClock) -> None:
        told: list[BaseException | None] = []
        worker.submit_sync(((log, log), note, 3, b"noted"), lambda _, error: told.append(error))
        assert told == [None]
        assert os.pread(note, 100, 0) == bytes(3) + b"noted"
        assert worker.ready_to_sync
        # Behind a job it waits for its turn, on the thread.
        order: list[str] = []
        ended = asyncio.get_running_loop().create_future()
        worker.submit(lambda: None, lambda _result, _error: order.append("job"))
        worker.submit_sync(((log,), -1, 0, b""), lambda _, error: order.append("sync"))
        assert order == []
        worker.submit(lambda: None, lambda _result, _error: ended.set_result(None))
        await ended
        assert order == ["job", "sync"]

    served(scenario, run_async)


def test_an_older_note_never_follows_a_newer_one(files: tuple[int, int], run_async: Any) -> None:
    log, note = files

    async def scenario(worker: QuickSyncWorker, clock: ManualClock) -> None:
        def next_one(_: object, error: BaseException | None) -> None:
            worker.submit_sync(((log,), note, 0, b"newer"), lambda _, error: None)

        worker.submit_sync(((log,), note, 0, b"older"), next_one)
        assert os.pread(note, 100, 0) == b"newer"

    served(scenario, run_async)


def test_the_peer_is_told_before_the_note_is_written(
    files: tuple[int, int], run_async: Any
) -> None:
    log, note = files

    async def scenario(worker: QuickSyncWorker, clock: ManualClock) -> None:
        def told(_: object, error: BaseException | None) -> None:
            assert error is None
            assert os.pread(note, 100, 0) == b""
            raise ValueError("whoever was told has failed")

        with pytest.raises(ValueError, match="was told"):
            worker.submit_sync(((log,), note, 0, b"noted"), told)
        assert os.pread(note, 100, 0) == b"noted"

    served(scenario, run_async)


def test_after_a_slow_one_the_thread_does_it_for_a_while(
    files: tuple[int, int], run_async: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(worker: QuickSyncWorker, clock: ManualClock) -> None:
        right, told = os.fdatasync, []
        slow_ms = int(QUICK_S * 1000) + 1

        def slow(descriptor: int) -> None:
            clock.advance(slow_ms)
            right(descriptor)

        def sync() -> asyncio.Future[None]:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            worker.submit_sync(((files[0],), -1, 0, b""), lambda _, error: ended.set_result(None))
            told.append(ended.done())
            return ended

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", slow)
            await sync()
        for _ in range(3):
            await sync()
        clock.advance(slow_ms * REST_FACTOR + 1)
        await sync()
        assert told == [True, False, False, False, True]

    served(scenario, run_async)


def test_a_failure_is_final(files: tuple[int, int], run_async: Any, tmp_path: Path) -> None:
    reader, writer = os.pipe()  # cannot be synced
    unwritable = os.open(tmp_path / "note", os.O_RDONLY)

    async def fails(worker: QuickSyncWorker, clock: ManualClock) -> None:
        errors: list[Any] = []
        for descriptor in (files[0], writer, files[0]):
            worker.submit_sync(((descriptor,), -1, 0, b""), lambda _, error: errors.append(error))
        assert errors[0] is None
        assert errors[1].errno == errno.EINVAL
        assert isinstance(errors[2], OSError)
        assert worker.sync_failed

    async def note_fails(worker: QuickSyncWorker, clock: ManualClock) -> None:
        errors: list[Any] = []
        worker.submit_sync(((files[0],), unwritable, 0, b"x"), lambda _, e: errors.append(e))
        assert errors == [None]
        assert worker.sync_failed

    served(fails, run_async)
    served(note_fails, run_async)
    for descriptor in (reader, writer, unwritable):
        os.close(descriptor)


def test_only_when_it_is_told_how(run_async: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        quick = QuickCalls(ManualClock(), sync_descriptor, write_descriptor)
        for calls, is_quick in ((None, False), (quick, True)):
            worker = start_worker("rmq-test", loop, calls)
            assert isinstance(worker, QuickSyncWorker) is is_quick
            worker.stop()

    run_async(scenario())
