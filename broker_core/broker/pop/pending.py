"""Held pops: woken by a message for their topic, or by their deadline.

Pops of one group for the same messages wait in one line. When a message arrives, the first of a
line tries, and the next one only if the first was served: a thousand waiting members of a group
cost one read per message. Owns the lines and the deadlines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

from broker_core.broker.held_wakes import TURN_MAX, HeldWakes
from broker_core.broker.pending_requests import PendingRequest, PendingRequests
from broker_core.codec.wire.pop_handle import pop_retry_topic
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

_HELD: Final = "broker.held_pops"

# Maximum length of a line, as in RocketMQ.
LINE_MAX: Final = 1_024

# The queue that has changed; None for any.
Place = tuple[str, int] | None
# Tries again; returns whether it has answered. True as the first argument forces an answer.
Retry = Callable[[bool, Place], bool]


class _HeldPop(PendingRequest[Retry]):
    __slots__ = ("line",)

    def __init__(self, connection: Connection, line: _Line, retry: Retry) -> None:
        super().__init__(connection, retry)
        self.line = line


class _Line:
    __slots__ = ("group", "is_served", "key", "live", "topic", "waiting", "woken")

    def __init__(self, key: Hashable, group: str, topic: str) -> None:
        self.key = key
        self.group = group
        self.topic = topic
        self.waiting: deque[_HeldPop] = deque()
        self.live = 0
        self.is_served = False
        self.woken: list[Place] = []


class PendingPops:
    """Every held pop of a broker, by what it waits for and by deadline."""

    def __init__(self, clock: Clock) -> None:
        self._lines: dict[Hashable, _Line] = {}
        # Lines by the topics whose messages they wait for: their own and its retry topic.
        self._by_topic: dict[bytes, dict[Hashable, _Line]] = {}
        self._held: PendingRequests[_HeldPop] = PendingRequests(
            _HELD, clock, expired=self._expired, closed=self._closed
        )
        self._wakes: HeldWakes[_Line] = HeldWakes(self._wake_later)
        # For each line of `_wakes`, what has changed.
        self._places: dict[_Line, Place] = {}
        self._is_released = False

    def __len__(self) -> int:
        return len(self._held)

    def count(self, group: str, topic: str) -> int:
        """Number of held pops of a group for a topic."""
        lines = self._by_topic.get(topic.encode(), {})
        return sum(line.live for line in lines.values() if line.group == group)

    def hold(
        self,
        connection: Connection,
        opaque: int,
        group: str,
        topic: str,
        wanted: Hashable,
        timeout_ms: float,
        retry: Retry,
    ) -> bool:
        """Hold the request `opaque` until `retry` has answered; at the deadline it must.

        `wanted` distinguishes pops of a group for different messages. False when the line is full,
        or the peer holds too many.
        """
        if self._is_released:
            retry(True, None)
            return True
        line = self._lines.get((group, topic, wanted))
        if line is not None and line.live >= LINE_MAX:
            return False
        if not self._held.admits(connection, opaque):
            return False
        line = self._line(group, topic, wanted)
        held = _HeldPop(connection, line, retry)
        line.waiting.append(held)
        line.live += 1
        self._held.add(held, timeout_ms)
        return True

    def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
        """A queue has new messages."""
        lines = self._by_topic.get(topic)
        if not lines:
            return
        place = (topic.decode("latin-1"), queue_id)
        if len(lines) <= TURN_MAX:
            for line in list(lines.values()):
                self._serve(line, place)
            return
        places = self._places
        self._wakes.add([line for line in lines.values() if line not in places])
        for line in lines.values():
            places[line] = place if places.get(line, place) == place else None

    def wake(self, group: str, topic: str) -> None:
        """Earlier messages can be popped now: a queue is free again."""
        lines = self._by_topic.get(topic.encode())
        if lines:
            for line in list(lines.values()):
                if line.group == group:
                    self._serve(line, None)

    def release_all(self) -> None:
        """Answer every held pop now and every later one at once: the broker stops."""
        self._is_released = True
        self._places.clear()
        for line in list(self._lines.values()):
            for held in list(line.waiting):
                self._finish(held)
        self._lines.clear()
        self._by_topic.clear()
        self._held.deadlines.clear()

    def _line(self, group: str, topic: str, wanted: Hashable) -> _Line:
        key = (group, topic, wanted)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(key, group, topic)
            for name in {topic, pop_retry_topic(group, topic)}:
                self._by_topic.setdefault(name.encode(), {})[key] = line
        return line

    def _wake_later(self, line: _Line) -> None:
        if line in self._places:
            self._serve(line, self._places.pop(line))

    def _serve(self, line: _Line, place: Place) -> None:
        line.woken.append(place)
        if line.is_served:
            # A read may dispatch messages, which wake this line again.
            return
        line.is_served = True
        try:
            while line.woken:
                self._serve_first(line, line.woken.pop())
        finally:
            line.is_served = False
        self._tidy(line)
        self._held.drop_ended()

    def _serve_first(self, line: _Line, place: Place) -> None:
        """Serve the pops of a line in turn until one finds nothing."""
        while line.waiting:
            held = line.waiting[0]
            retry = held.retry
            if retry is not None:
                if not retry(False, place):
                    return
                self._end(held)
            if line.waiting and line.waiting[0] is held:
                line.waiting.popleft()

    def _finish(self, held: _HeldPop) -> None:
        retry = held.retry
        if retry is not None:
            # Before it answers: its read may wake the line.
            self._end(held)
            retry(True, None)

    def _end(self, held: _HeldPop) -> None:
        if held.is_live:
            held.line.live -= 1
            self._held.end(held)

    def _closed(self, held: _HeldPop) -> None:
        self._end(held)
        self._forget(held)

    def _forget(self, held: _HeldPop) -> None:
        """Ended pops stay in a long line and are skipped when their turn comes."""
        waiting = held.line.waiting
        while waiting and not waiting[0].is_live:
            waiting.popleft()
        if len(waiting) > 16 + 2 * held.line.live:
            held.line.waiting = deque(each for each in waiting if each.is_live)
        self._tidy(held.line)

    def _tidy(self, line: _Line) -> None:
        if line.live or self._lines.get(line.key) is not line:
            return
        del self._lines[line.key]
        for name in {line.topic, pop_retry_topic(line.group, line.topic)}:
            lines = self._by_topic.get(name.encode(), {})
            lines.pop(line.key, None)
            if not lines:
                self._by_topic.pop(name.encode(), None)

    def _expired(self, held: _HeldPop) -> None:
        self._finish(held)
        self._forget(held)
