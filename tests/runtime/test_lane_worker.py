"""The worker that syncs without the interpreter: order, errors, the note, the end."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.runtime import lane_worker
from broker_core.runtime.lane_worker import REST_SYNCS, LaneWorker
from broker_core.runtime.worker import Done, InlineWorker, WorkerSlot

lanes = pytest.importorskip(
    "broker_core.runtime._system_lane",
    reason="native code is not built: python setup.py build_ext --inplace",
)

NO_NOTE = (-1, 0, b"")
# Longer than any machine runs.
ALWAYS_NEAR = 1 << 62


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A file to sync and one for the note."""
    flags = os.O_CREAT | os.O_RDWR
    descriptors = tuple(os.open(tmp_path / name, flags, 0o600) for name in ("log", "note"))
    os.write(descriptors[0], b"data")
    yield descriptors[0], descriptors[1]
    for descriptor in descriptors:
        os.close(descriptor)


def served(
    scenario: Callable[[LaneWorker], Any], run_async: Callable[..., Any], **options: bool
) -> Any:
    """Run a scenario beside a worker of the running loop."""

    async def run() -> Any:
        worker = LaneWorker("rmq-test", asyncio.get_running_loop(), lanes, **options)
        try:
            return await scenario(worker)
        finally:
            worker.stop()

    return run_async(run())


def test_a_sync_is_reported_and_then_noted(
    files: tuple[int, int], run_async: Callable[..., Any]
) -> None:
    log, note = files

    async def scenario(worker: LaneWorker) -> None:
        reported: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        ready = [worker.ready_to_sync]
        worker.submit_sync(((log, log), note, 7, b"noted"), lambda _, e: reported.set_result(e))
        ready.append(worker.ready_to_sync)
        assert await reported is None
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        worker.submit(lambda: None, lambda _result, _error: told.set_result(None))
        # Syncs keep their order by themselves; a job may be about to change what they note.
        ready.append(worker.ready_to_sync)
        await told
        ready.append(worker.ready_to_sync)
        assert ready == [True, True, False, True]
        assert worker.syncs_natively
        # The thread takes what comes next only when the note is written.
        assert worker.run(lambda: os.pread(note, 100, 0)) == bytes(7) + b"noted"
        assert not worker.sync_failed

    served(scenario, run_async)


def test_syncs_and_jobs_keep_their_order(
    files: tuple[int, int], run_async: Callable[..., Any]
) -> None:
    seen: list[tuple[int, Any, BaseException | None]] = []

    async def scenario(worker: LaneWorker) -> None:
        finished = asyncio.get_running_loop().create_future()

        def report(number: int) -> Done:
            return lambda result, error: seen.append((number, result, error))

        for number in range(100):
            if number % 3:
                call = ((files[0],), files[1], number, b"%d" % (number % 10))
                worker.submit_sync(call, report(number))
            else:
                worker.submit(functools.partial(str, number), report(number))
        worker.submit(threading.current_thread, lambda thread, _: finished.set_result(thread))
        assert (await finished).name == "rmq-test"
        assert os.pread(files[1], 1, 98) == b"8"

    served(scenario, run_async)
    assert seen == [(n, None if n % 3 else str(n), None) for n in range(100)]


def test_after_a_failure_nothing_is_synced(
    files: tuple[int, int], run_async: Callable[..., Any]
) -> None:
    reader, writer = os.pipe()  # cannot be synced

    async def scenario(worker: LaneWorker) -> None:
        errors: list[BaseException | None] = []
        finished = asyncio.get_running_loop().create_future()
        for descriptor in (files[0], writer, files[0]):
            call = ((descriptor,), files[1], 0, b"%d" % len(errors))
            worker.submit_sync(call, lambda _, error: errors.append(error))
        worker.submit(lambda: worker.sync_failed, lambda failed, _: finished.set_result(failed))
        assert await finished is True
        numbers = [getattr(error, "errno", None) for error in errors]
        assert numbers == [None, errno.EINVAL, errno.EIO]
        assert worker.sync_failed

    served(scenario, run_async)
    os.close(reader)
    os.close(writer)


def test_a_note_that_cannot_be_written_is_a_failure(
    files: tuple[int, int], tmp_path: Path, run_async: Callable[..., Any]
) -> None:
    unwritable = os.open(tmp_path / "note", os.O_RDONLY)

    async def scenario(worker: LaneWorker) -> None:
        slot = WorkerSlot(worker)
        errors: list[BaseException | None] = []
        worker.submit_sync(((files[0],), unwritable, 0, b"x"), lambda _, e: errors.append(e))
        assert worker.run(lambda: worker.sync_failed)
        slot.exchange(InlineWorker())
        assert errors == [None], "the sync itself was fine"
        assert slot.sync_failed, "the next user of the slot sees it"

    async def run() -> None:
        await scenario(LaneWorker("rmq-test", asyncio.get_running_loop(), lanes))

    run_async(run())
    os.close(unwritable)


def test_stop_reports_what_is_under_way(
    files: tuple[int, int], run_async: Callable[..., Any]
) -> None:
    seen: list[BaseException | None] = []

    async def run() -> None:
        worker = LaneWorker("rmq-test", asyncio.get_running_loop(), lanes)
        for _ in range(5):
            worker.submit_sync(((files[0],), *NO_NOTE), lambda _, error: seen.append(error))
        worker.stop()
        assert seen == [None] * 5
        await asyncio.sleep(0)

    run_async(run())


def test_stop_after_the_loop_has_ended(
    files: tuple[int, int], run_async: Callable[..., Any]
) -> None:
    async def run() -> LaneWorker:
        worker = LaneWorker("rmq-test", asyncio.get_running_loop(), lanes)
        worker.submit_sync(((files[0],), *NO_NOTE), lambda _, e: seen.append(e))
        return worker

    seen: list[Any] = []
    worker: LaneWorker = run_async(run())
    worker.stop()
    assert seen == [None]


class Spy:
    """A lane; what `wait_finished` answered is noted."""

    def __init__(self, lane: Any) -> None:
        self._lane = lane
        self.waits: list[bool] = []

    def wait_finished(self, limit_us: int) -> bool:
        self.waits.append(self._lane.wait_finished(limit_us))
        return self.waits[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lane, name)


def test_an_owner_that_stays_awake_is_notified_of_each_sync_once(
    files: tuple[int, int], run_async: Callable[..., Any]
) -> None:
    log, note = files

    async def scenario(worker: LaneWorker) -> None:
        loop = asyncio.get_running_loop()
        seen: list[BaseException | None] = []
        for number in range(40):
            os.pwrite(log, b"%04d" % number, number * 4)
            done = loop.create_future()

            def report(_: Any, error: BaseException | None, done: Any = done) -> None:
                seen.append(error)
                done.set_result(None)

            worker.submit_sync(((log,), note, 0, b"%04d" % number), report, soon=True)
            assert len(seen) == number, "never before submit_sync returns"
            await done
        assert seen == [None] * 40
        # Reported by one of both, whichever it was: nothing is left for the other.
        await asyncio.sleep(0)
        assert worker._lane.take() is None
        assert worker.run(lambda: os.pread(note, 9, 0)) == b"0039"

    served(scenario, run_async)


def test_an_owner_that_is_awake_needs_no_event(
    files: tuple[int, int], run_async: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_worker, "AWAKE_US", 60_000_000)
    monkeypatch.setattr(lane_worker, "NEAR_US", ALWAYS_NEAR)

    async def scenario(worker: LaneWorker) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(worker._lane.fileno())
        for _ in range(20):
            done = loop.create_future()
            worker.submit_sync(
                ((files[0],), *NO_NOTE),
                lambda _, error, done=done: done.set_result(error),
                soon=True,
            )
            assert await done is None

    served(scenario, run_async)


def test_an_owner_with_one_peer_is_notified_at_once(
    files: tuple[int, int], run_async: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_worker, "AWAKE_US", 60_000_000)
    log, note = files

    async def scenario(worker: LaneWorker) -> None:
        told: list[BaseException | None] = []

        def next_one(_: Any, error: BaseException | None) -> None:
            told.append(error)
            if len(told) < 5:
                text = b"%d" % len(told)
                worker.submit_sync(((log,), note, 0, text), next_one, soon=True)

        worker.submit_sync(((log,), note, 0, b"0"), next_one, soon=True)
        assert told == [None] * 5, "before submit_sync returned, those that followed as well"
        assert worker.run(lambda: os.pread(note, 9, 0)) == b"4"
        # Behind a job it waits for its turn.
        order: list[str] = []
        ended = asyncio.get_running_loop().create_future()
        worker.submit(lambda: None, lambda _result, _error: order.append("job"))
        worker.submit_sync(((log,), *NO_NOTE), lambda _, error: order.append("sync"), soon=True)
        assert order == []
        worker.submit(lambda: None, lambda _result, _error: ended.set_result(None))
        await ended
        assert order == ["job", "sync"]

    served(scenario, run_async, waits_at_once=True)


def test_a_disk_that_hangs_is_left_to_the_thread(
    files: tuple[int, int], run_async: Callable[..., Any]
) -> None:
    held = threading.Event()

    async def scenario(worker: LaneWorker) -> None:
        spy = worker._lane = Spy(worker._lane)
        done = asyncio.get_running_loop().create_future()
        worker._put((lambda: held.wait(60), None))
        worker.submit_sync(
            ((files[0],), *NO_NOTE), lambda _, error: done.set_result(error), soon=True
        )
        assert (spy.waits, done.done()) == ([False], False)
        held.set()
        assert await done is None

    served(scenario, run_async, waits_at_once=True)


@pytest.mark.parametrize("near_us", [-1, ALWAYS_NEAR])
def test_an_owner_stays_awake_for_producers_that_are_near(
    files: tuple[int, int],
    run_async: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    near_us: int,
) -> None:
    monkeypatch.setattr(lane_worker, "NEAR_US", near_us)

    async def scenario(worker: LaneWorker) -> None:
        spy = worker._lane = Spy(worker._lane)
        for _ in range(20):
            done = asyncio.get_running_loop().create_future()
            worker.submit_sync(
                ((files[0],), *NO_NOTE),
                lambda _, error, done=done: done.set_result(error),
                soon=True,
            )
            assert await done is None
        assert bool(spy.waits) == (near_us > 0)

    served(scenario, run_async)


def test_the_distance_of_a_sync_is_from_the_end_of_the_last_one(files: tuple[int, int]) -> None:
    lane = lanes.Lane()
    worker = threading.Thread(target=lane.wait)
    worker.start()
    since_start = time.monotonic_ns() // 1000
    # The first one is as far from the last one as can be.
    assert lane.post_sync((files[0],), *NO_NOTE) >= since_start
    before = time.monotonic_ns() // 1000
    assert lane.wait_finished(60_000_000)
    assert lane.take() == 0
    distance = lane.post_sync((files[0],), *NO_NOTE)
    assert 0 <= distance <= time.monotonic_ns() // 1000 - before + 1
    lane.post_token()
    worker.join()


def test_an_owner_stays_awake_for_a_moment_only(
    files: tuple[int, int], run_async: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that hangs must not hang the loop: here the thread is held up before the sync."""
    monkeypatch.setattr(lane_worker, "NEAR_US", ALWAYS_NEAR)
    held = threading.Event()

    async def scenario(worker: LaneWorker) -> None:
        spy = worker._lane = Spy(worker._lane)
        done = asyncio.get_running_loop().create_future()
        worker._put((lambda: held.wait(60), None))
        worker.submit_sync(
            ((files[0],), *NO_NOTE), lambda _, error: done.set_result(error), soon=True
        )
        for _ in range(4):
            await asyncio.sleep(0)
        assert (spy.waits, done.done()) == ([False], False)
        held.set()
        assert await done is None
        # And is not tried again at once.
        for _ in range(REST_SYNCS):
            done = asyncio.get_running_loop().create_future()
            worker.submit_sync(
                ((files[0],), *NO_NOTE),
                lambda _, error, done=done: done.set_result(error),
                soon=True,
            )
            assert await done is None
        assert spy.waits == [False]

    served(scenario, run_async)


def test_an_owner_that_is_awake_is_notified_of_a_failure(run_async: Callable[..., Any]) -> None:
    reader, writer = os.pipe()

    async def scenario(worker: LaneWorker) -> None:
        for code in (errno.EINVAL, errno.EIO):
            told = asyncio.get_running_loop().create_future()
            call = ((writer,), *NO_NOTE)
            worker.submit_sync(call, lambda _, error, told=told: told.set_result(error), soon=True)
            error = await told
            assert isinstance(error, OSError)
            assert error.errno == code, "a pipe cannot be synced, and nothing is after that"
            assert worker.sync_failed

    served(scenario, run_async)
    os.close(reader)
    os.close(writer)


def test_a_sync_that_is_waited_for_can_end_with_the_worker(
    files: tuple[int, int], run_async: Callable[..., Any]
) -> None:
    seen: list[BaseException | None] = []

    async def scenario(worker: LaneWorker) -> None:
        worker.submit_sync(((files[0],), *NO_NOTE), lambda _, error: seen.append(error), soon=True)
        worker.stop()
        assert seen == [None]
        # The moment that was planned finds nothing to wait for.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert seen == [None]

    async def run() -> None:
        await scenario(LaneWorker("rmq-test", asyncio.get_running_loop(), lanes))

    run_async(run())


def test_absurd_calls_are_refused(run_async: Callable[..., Any]) -> None:
    lane = lanes.Lane()
    for call in [
        ((0,) * 9, -1, 0, b""),
        ((), -1, 0, bytes(513)),
        (("text",), -1, 0, b""),
        ([1], -1, 0, b""),
        ((2**40,), -1, 0, b""),
        ((-1,), -1, 0, b""),
        ((1,), -1, 0, None),
    ]:
        with pytest.raises((TypeError, ValueError)):
            lane.post_sync(*call)
    assert lane.take() is None
    with pytest.raises(TypeError):
        lanes.Lane(1)
