"""Held pops wait in lines; the costs of many are in `tests/broker/pull/test_pending.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.broker.pop.pending import LINE_MAX, PendingPops
from tests.fakes.manual_clock import ManualClock

Run = Callable[..., Any]


class Peer:
    """What the table uses of a connection."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.load = self
        self.closed: list[Callable[[Any], object]] = []

    def suspend(self, opaque: int, account: str) -> bool:
        return True

    def on_close(self, callback: Callable[[Any], object]) -> None:
        self.closed.append(callback)


class Line:
    """Held pops by name, which answer as long as there are messages."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.table = PendingPops(self.clock)
        self.peer: Any = Peer()
        self.messages = 0
        self.tries: list[str] = []

    def hold(self, name: str, group: str = "G", wanted: object = None) -> bool:
        def retry(final: bool, place: object) -> bool:
            self.tries.append(name)
            found = self.messages > 0
            self.messages -= found
            return final or found

        return self.table.hold(self.peer, 1, group, "T", wanted, 60_000, retry)


def test_the_next_in_line_tries_only_if_the_first_was_served(run_async: Run) -> None:
    async def scenario() -> None:
        line = Line()
        for name in ("a", "b", "c"):
            assert line.hold(name)
        line.table.arrived(b"T", 0, 1)
        assert line.tries == ["a"], "nothing was found, so the others need not look"
        line.messages = 2
        line.table.arrived(b"T", 0, 3)
        assert line.tries == ["a", "a", "b", "c"]
        assert line.table.count("G", "T") == 1
        line.table.release_all()
        assert len(line.table) == 0

    run_async(scenario())


def test_each_group_and_each_filter_has_its_own_line(run_async: Run) -> None:
    async def scenario() -> None:
        line = Line()
        line.hold("a")
        line.hold("filtered", wanted="TagA")
        line.hold("other", group="H")
        line.table.arrived(b"T", 0, 1)
        assert sorted(line.tries) == ["a", "filtered", "other"]
        line.tries.clear()
        line.table.wake("H", "T")
        assert line.tries == ["other"]
        line.table.arrived(b"U", 0, 1)
        assert line.tries == ["other"], "another topic"
        line.table.release_all()

    run_async(scenario())


def test_a_full_line_holds_no_more(run_async: Run) -> None:
    async def scenario() -> None:
        line = Line()
        assert all(line.hold("x") for _ in range(LINE_MAX))
        assert not line.hold("one too many")
        assert line.hold("another line", wanted="TagA")
        line.table.release_all()
        assert line.hold("answered at once")
        assert line.tries[-1] == "answered at once"
        assert len(line.table) == 0

    run_async(scenario())


def test_a_closed_connection_leaves_its_lines(run_async: Run) -> None:
    async def scenario() -> None:
        line = Line()
        line.hold("a")
        line.hold("b")
        for callback in line.peer.closed:
            callback(line.peer)
        line.table.arrived(b"T", 0, 1)
        assert line.tries == []
        assert len(line.table) == 0
        line.table.release_all()

    run_async(scenario())
