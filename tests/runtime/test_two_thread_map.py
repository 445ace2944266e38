"""A map on two threads: every item once, results in order, both threads stop on a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from broker_core.runtime.two_thread_map import OWNER, WORKER, share_work
from broker_core.runtime.worker import InlineWorker, ThreadWorker

PATIENCE_S = 120


@pytest.fixture
def worker() -> Iterator[ThreadWorker]:
    started = ThreadWorker("test-helper", lambda call: None)
    yield started
    started.stop()


def shared(items: Sequence[Any], job: Callable[[int, Any], Any], worker: Any) -> list[Any]:
    """All results."""
    found: list[Any] = []
    share_work(items, job, worker, found.extend)
    return found


def test_results_are_in_order_on_both_threads(worker: ThreadWorker) -> None:
    items = list(range(500))
    for _ in range(20):
        assert shared(items, lambda _, item: item, worker) == items


def test_both_threads_work(worker: ThreadWorker) -> None:
    """Each waits for the other to have begun: one thread alone would never end."""
    begun = {OWNER: threading.Event(), WORKER: threading.Event()}
    names = set()

    def job(hand: int, _: int) -> None:
        begun[hand].set()
        names.add((hand, threading.current_thread().name))
        assert begun[1 - hand].wait(PATIENCE_S)

    assert shared([0, 1], job, worker) == [None, None]
    assert names == {(OWNER, threading.current_thread().name), (WORKER, "test-helper")}


def test_a_worker_that_is_busy_is_not_waited_for(worker: ThreadWorker) -> None:
    leave = threading.Event()
    worker.submit(lambda: leave.wait(PATIENCE_S), lambda *_: None)
    hands = shared(range(5), lambda hand, _: hand, worker)
    assert hands == [OWNER] * 5
    leave.set()
    worker.run(lambda: None)
    assert hands == [OWNER] * 5, "coming late, it finds nothing to do"


def test_nothing_is_handed_over_before_what_comes_first(worker: ThreadWorker) -> None:
    """The worker is at the first item until the owner has done the others."""
    others_done, taken = threading.Semaphore(0), threading.Event()

    def job(hand: int, item: int) -> int:
        if hand == WORKER and item == 0:
            taken.set()
            for _ in range(3):
                assert others_done.acquire(timeout=PATIENCE_S)
        elif hand == OWNER:
            others_done.release()
        return item

    class LateOwner:
        """Lets the worker take the first item."""

        def submit(self, help_out: object, done: object) -> None:
            worker.submit(help_out, done)  # type: ignore[arg-type]
            assert taken.wait(PATIENCE_S)

    seen: list[list[int]] = []
    share_work(range(4), job, LateOwner(), seen.append)  # type: ignore[arg-type]
    assert seen == [[0, 1, 2, 3]], "all that the owner did was behind what was not done"


@pytest.mark.parametrize("culprit", [OWNER, WORKER])
def test_an_error_of_either_thread_is_raised_when_both_have_stopped(
    worker: ThreadWorker, culprit: int
) -> None:
    begun = {OWNER: threading.Event(), WORKER: threading.Event()}
    running: set[int] = set()

    def job(hand: int, _: int) -> None:
        running.add(hand)
        begun[hand].set()
        assert begun[1 - hand].wait(PATIENCE_S)
        try:
            if hand == culprit:
                raise OSError(5, "no")
        finally:
            running.discard(hand)

    with pytest.raises(OSError, match="no"):
        shared(range(1_000), job, worker)
    assert not running


def test_a_failing_listener_stops_both_threads(worker: ThreadWorker) -> None:
    running: set[int] = set()

    def job(hand: int, _: int) -> None:
        running.add(hand)
        running.discard(hand)

    def fail(_: list[None]) -> None:
        raise ValueError("listener")

    with pytest.raises(ValueError, match="listener"):
        share_work(range(100_000), job, worker, fail)
    worker.run(lambda: None)
    assert not running


def test_inline_everything_is_done_at_once() -> None:
    found = shared("abc", lambda hand, item: (hand, item), InlineWorker())
    assert found == [(WORKER, "a"), (WORKER, "b"), (WORKER, "c")]
    with pytest.raises(ZeroDivisionError):
        shared([1, 0], lambda _, item: 1 // item, InlineWorker())
    with pytest.raises(OSError, match="no"):
        shared([1], lambda _, item: no(), InlineWorker())


def no() -> None:
    raise OSError(5, "no")


def test_no_items() -> None:
    assert shared([], lambda hand, item: item, InlineWorker()) == []
