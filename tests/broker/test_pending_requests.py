"""Held requests: live ones, those of a connection that ends, and their deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker_core.broker.pending_requests import (
    ENDED_MAX,
    HeldDeadlines,
    PendingRequest,
    PendingRequests,
)
from tests.fakes.manual_clock import ManualClock

Run = Callable[..., Any]


class Held:
    """A held request; `is_live` until it is ended."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.is_live = True


class Deadlines:
    """Deadlines with a clock, and the requests that expired."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.expired: list[str] = []
        self.table: HeldDeadlines[Held] = HeldDeadlines(self.clock, self._end)

    def _end(self, held: Held) -> None:
        held.is_live = False
        self.expired.append(held.name)

    def after(self, ms: float) -> list[str]:
        self.clock.advance(ms)
        self.table.expire()
        return self.expired


def test_requests_expire_in_the_order_of_their_deadlines(run_async: Run) -> None:
    async def scenario() -> None:
        deadlines = Deadlines()
        for name, timeout_ms in (("late", 300), ("early", 100), ("also early", 100)):
            deadlines.table.add(Held(name), timeout_ms)
        assert deadlines.after(99) == []
        assert deadlines.after(1) == ["early", "also early"]
        assert deadlines.after(200) == ["early", "also early", "late"]
        assert len(deadlines.table) == 0
        deadlines.table.clear()

    run_async(scenario())


def test_an_ended_request_does_not_expire(run_async: Run) -> None:
    async def scenario() -> None:
        deadlines = Deadlines()
        held = Held("answered")
        deadlines.table.add(held, 100)
        held.is_live = False
        assert deadlines.after(100) == []
        assert len(deadlines.table) == 0
        deadlines.table.clear()

    run_async(scenario())


def test_the_timer_of_the_loop_ends_a_request(run_async: Run) -> None:
    async def scenario() -> None:
        ended = asyncio.get_running_loop().create_future()
        clock = ManualClock()

        def end(held: Held) -> None:
            held.is_live = False
            ended.set_result(held.name)

        table: HeldDeadlines[Held] = HeldDeadlines(clock, end)
        table.add(Held("x"), 1)
        clock.advance(1)
        assert await ended == "x"

    run_async(scenario())


def test_ended_requests_are_dropped_when_they_are_the_majority(run_async: Run) -> None:
    async def scenario() -> None:
        deadlines = Deadlines()
        live = Held()
        deadlines.table.add(live, 1_000)
        for _ in range(ENDED_MAX + 2):
            held = Held()
            deadlines.table.add(held, 2_000)
            held.is_live = False
        deadlines.table.drop_ended(1)
        assert len(deadlines.table) == 1
        deadlines.table.clear()
        assert deadlines.after(5_000) == []

    run_async(scenario())


class Peer:
    """What the table uses of a connection."""

    def __init__(self, *, is_full: bool = False) -> None:
        self.attributes: dict[str, Any] = {}
        self.load = self
        self.callbacks: list[Callable[[Any], object]] = []
        self._is_full = is_full

    def suspend(self, opaque: int, account: str) -> bool:
        return not self._is_full

    def on_close(self, callback: Callable[[Any], object]) -> None:
        self.callbacks.append(callback)


Request = PendingRequest[Callable[[], bool]]


class Requests:
    """A table and the requests that it gave back."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.expired: list[Request] = []
        self.closed: list[Request] = []
        self.table: PendingRequests[Request] = PendingRequests(
            "test.held", self.clock, expired=self._expired, closed=self._closed
        )

    def held(self, peer: Any, timeout_ms: float = 100) -> Request:
        assert self.table.admits(peer, 1)
        held: Request = PendingRequest(peer, lambda: True)
        self.table.add(held, timeout_ms)
        return held

    def _expired(self, held: Request) -> None:
        self.table.end(held)
        self.expired.append(held)

    def _closed(self, held: Request) -> None:
        self.table.end(held)
        self.closed.append(held)


def test_a_request_is_ended_once(run_async: Run) -> None:
    async def scenario() -> None:
        requests, peer = Requests(), Peer()
        first, other = requests.held(peer), requests.held(peer, 200)
        assert len(requests.table) == 2
        for _ in range(2):
            requests.table.end(first)
            assert (len(requests.table), first.is_live, other.is_live) == (1, False, True)
        assert first.retry is None, "what it keeps is freed before its deadline"
        requests.clock.advance(300)
        requests.table.deadlines.expire()
        assert (requests.expired, len(requests.table)) == ([other], 0)
        for callback in peer.callbacks:
            callback(peer)
        assert requests.closed == []

    run_async(scenario())


def test_only_the_requests_of_a_closed_connection_end(run_async: Run) -> None:
    async def scenario() -> None:
        requests, gone, stays = Requests(), Peer(), Peer()
        ended = {requests.held(gone) for _ in range(3)}
        live = requests.held(stays)
        (callback,) = gone.callbacks
        callback(gone)
        assert ({*requests.closed}, len(requests.table)) == (ended, 1)
        assert live.is_live
        requests.table.deadlines.clear()

    run_async(scenario())


def test_a_peer_that_holds_too_many_is_not_admitted() -> None:
    peer: Any = Peer(is_full=True)
    requests = Requests()
    assert not requests.table.admits(peer, 1)
    assert (len(requests.table), peer.callbacks) == (0, [])
