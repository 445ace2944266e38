"""Replays of signed requests: at once, on another connection, later, after a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_core.access.strict_sessions import CLOCK_SKEW_MAX_MS, StrictSessions
from broker_core.codec.wire.request_signature import StrictStamp
from broker_core.errors import LimitReached
from tests.fakes.manual_clock import ManualClock


class Peer:
    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], object]] = []
        self.attributes: dict[str, Any] = {}

    def on_close(self, callback: Callable[[Any], object]) -> None:
        self.callbacks.append(callback)

    def close(self) -> None:
        for callback in self.callbacks:
            callback(self)


def stamp(
    clock: ManualClock, session: str = "a", sequence: int = 1, late_ms: int = 0
) -> StrictStamp:
    return StrictStamp(clock.wall_ms() - late_ms, session, sequence)


def test_requests_in_order_pass_and_repeated_ones_do_not() -> None:
    clock, peer = ManualClock(), Peer()
    sessions = StrictSessions(clock)
    problem: Any = sessions.problem
    assert problem(peer, stamp(clock, sequence=1)) == ""
    assert problem(peer, stamp(clock, sequence=5)) == ""
    assert problem(peer, stamp(clock, sequence=5)) == "it was sent before"
    assert problem(peer, stamp(clock, sequence=3)) == "it was sent before"
    assert problem(peer, stamp(clock, sequence=6)) == ""


def test_a_session_stays_with_its_connection_even_when_that_is_gone() -> None:
    clock, peer, other = ManualClock(), Peer(), Peer()
    problem: Any = StrictSessions(clock).problem
    assert problem(peer, stamp(clock)) == ""
    assert "another connection" in problem(other, stamp(clock, sequence=2))
    peer.close()
    assert "another connection" in problem(other, stamp(clock, sequence=2))


def test_clocks_may_differ_by_minutes_only() -> None:
    clock, peer = ManualClock(), Peer()
    clock.advance(10 * CLOCK_SKEW_MAX_MS)
    sessions: Any = StrictSessions(clock)
    clock.advance(2 * CLOCK_SKEW_MAX_MS)
    assert sessions.problem(peer, stamp(clock, "b", late_ms=CLOCK_SKEW_MAX_MS)) == ""
    assert sessions.problem(Peer(), stamp(clock, "c", late_ms=-CLOCK_SKEW_MAX_MS)) == ""
    assert "clock" in sessions.problem(peer, stamp(clock, "d", late_ms=CLOCK_SKEW_MAX_MS + 1))
    assert "clock" in sessions.problem(peer, stamp(clock, "e", late_ms=-CLOCK_SKEW_MAX_MS - 1))


def test_after_a_restart_what_was_recorded_before_is_refused() -> None:
    clock, peer = ManualClock(), Peer()
    recorded = stamp(clock, sequence=9)
    clock.advance(60_000)
    sessions: Any = StrictSessions(clock)
    assert "before this server started" in sessions.problem(peer, recorded)
    assert sessions.problem(peer, stamp(clock, late_ms=1_000)) == ""


def test_sessions_are_forgotten_when_no_copy_can_be_in_time() -> None:
    clock, peers = ManualClock(), [Peer(), Peer()]
    sessions: Any = StrictSessions(clock, sessions_max=2)
    for name, peer in zip("ab", peers, strict=True):
        assert sessions.problem(peer, stamp(clock, name), name) == ""
    with pytest.raises(LimitReached, match="2 signed connections"):
        sessions.problem(Peer(), stamp(clock, "c"), "c")
    for peer in peers:
        peer.close()
    with pytest.raises(LimitReached):
        sessions.problem(Peer(), stamp(clock, "c"), "c")
    clock.advance(2 * CLOCK_SKEW_MAX_MS + 1)
    assert sessions.problem(Peer(), stamp(clock, "c"), "c") == ""
    assert len(sessions) == 1


def test_one_connection_has_one_session() -> None:
    clock, peer = ManualClock(), Peer()
    sessions: Any = StrictSessions(clock)
    assert sessions.problem(peer, stamp(clock, "first")) == ""
    for number in range(1_000):
        assert "another session" in sessions.problem(peer, stamp(clock, f"n{number}"))
    assert len(sessions) == 1
    assert sessions.problem(peer, stamp(clock, "first", 2)) == ""


def test_one_account_has_a_share_of_the_table() -> None:
    clock = ManualClock()
    sessions: Any = StrictSessions(clock, sessions_max=40)
    for number in range(10):
        assert sessions.problem(Peer(), stamp(clock, f"a{number}"), "a") == ""
    with pytest.raises(LimitReached, match="account a in a few minutes, at most 10"):
        sessions.problem(Peer(), stamp(clock, "more"), "a")
    assert sessions.problem(Peer(), stamp(clock, "b"), "b") == ""


def test_a_sweep_is_bounded() -> None:
    clock = ManualClock()
    sessions: Any = StrictSessions(clock, sessions_max=4_000)
    for number in range(1_000):
        peer = Peer()
        assert sessions.problem(peer, stamp(clock, f"a{number}"), "a") == ""
        peer.close()
    clock.advance(2 * CLOCK_SKEW_MAX_MS + 1)
    before = len(sessions)
    assert sessions.problem(Peer(), stamp(clock, "x"), "x") == ""
    assert 0 < before - len(sessions) <= 64
    for number in range(100):
        sessions.problem(Peer(), stamp(clock, f"y{number}"), "y")
    assert len(sessions) == 101
