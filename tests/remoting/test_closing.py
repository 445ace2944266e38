"""Connections are closed gracefully, and by force if that takes too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.remoting.closing import abort_handshake, close_connections

Run = Callable[..., Any]


class Peer:
    """A connection whose close succeeds at once, or only by an abort."""

    def __init__(self, *, is_stuck: bool = False) -> None:
        self.is_stuck = is_stuck
        self.calls: list[str] = []
        self.callback: Callable[[Any], object] | None = None

    def on_close(self, callback: Callable[[Any], object]) -> None:
        self.callback = callback

    def close(self, reason: str) -> None:
        self.calls.append(f"close: {reason}")
        if not self.is_stuck:
            self._end()

    def abort(self, reason: str) -> None:
        self.calls.append(f"abort: {reason}")
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self.calls.append("lost")

    def _end(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(self)


def test_those_that_are_flushed_are_not_aborted(run_async: Run) -> None:
    async def scenario() -> None:
        peers: list[Any] = [Peer(), Peer()]
        await close_connections(peers, "bye", 60_000)
        assert [peer.calls for peer in peers] == [["close: bye"]] * 2
        await close_connections([], "bye", 60_000)

    run_async(scenario())


def test_one_that_does_not_read_is_aborted(run_async: Run) -> None:
    async def scenario() -> None:
        stuck: Any = Peer(is_stuck=True)
        await close_connections([stuck], "bye", 1)
        assert stuck.calls == ["close: bye", "abort: bye"]

    run_async(scenario())


def test_the_end_during_a_handshake_is_reported_here() -> None:
    peer: Any = Peer()
    abort_handshake(peer, "late")
    assert peer.calls == ["abort: late", "lost"]
