"""Pops that found nothing and wait: woken by a message for their topic, or by their deadline.

Those of one group that want the same wait in one line. When something comes, the first of a line
tries, and the next one only if the first was served: a thousand waiting members of a group cost
one look per message, not a thousand. Owns the lines and one timer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Final

from broker_core.access.asking_account import account_name
from broker_core.codec.pop_handle import pop_retry_topic
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

_HELD: Final = "broker.held_pops"

# RocketMQ's: how many pops of one line may wait.
LINE_MAX: Final = 1_024

# So many ended pops may be remembered besides as many as are held.
ENDED_MAX: Final = 1_024

# The queue in which something has changed; None when that could be any of them.
Place = tuple[str, int] | None
# Tries again and says whether it has answered; the first argument tells that it must.
Retry = Callable[[bool, Place], bool]


class _HeldPop:
    __slots__ = ("connection", "is_live", "line", "retry")

    def __init__(self, connection: Connection, line: _Line, retry: Retry) -> None:
        self.connection = connection
        self.line = line
        self.retry = retry
        # Not once it is answered, is about to be, or its connection is gone.
        self.is_live = True


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
        self._clock = clock
        self._lines: dict[Hashable, _Line] = {}
        # Lines by the topics whose messages they wait for: their own and its retry topic.
        self._by_topic: dict[bytes, dict[Hashable, _Line]] = {}
        self._deadlines: list[tuple[float, int, _HeldPop]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._live = 0
        self._is_released = False

    def __len__(self) -> int:
        return self._live

    def count(self, group: str, topic: str) -> int:
        """How many pops of a group wait for a topic."""
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
        """Keep the request `opaque` until `retry` has answered; at the deadline it is told to.

        `wanted` tells apart what pops of a group look for. False when the line is full, or the
        share of the peer.
        """
        if self._is_released:
            retry(True, None)
            return True
        line = self._lines.get((group, topic, wanted))
        if line is not None and line.live >= LINE_MAX:
            return False
        if not connection.load.suspend(opaque, account_name(connection)):
            return False
        line = self._line(group, topic, wanted)
        held = _HeldPop(connection, line, retry)
        line.waiting.append(held)
        line.live += 1
        self._live += 1
        of_connection = connection.attributes.get(_HELD)
        if of_connection is None:
            of_connection = connection.attributes[_HELD] = set()
            connection.on_close(self._connection_closed)
        of_connection.add(held)
        deadline = self._clock.monotonic() + timeout_ms / 1000
        heapq.heappush(self._deadlines, (deadline, next(self._numbers), held))
        self._arm()
        return True

    def arrived(self, topic: bytes, queue_id: int, max_offset: int) -> None:
        """A queue has new messages."""
        lines = self._by_topic.get(topic)
        if lines:
            place = (topic.decode("latin-1"), queue_id)
            for line in list(lines.values()):
                self._serve(line, place)

    def wake(self, group: str, topic: str) -> None:
        """Messages that were there can be popped now: a queue is free again."""
        lines = self._by_topic.get(topic.encode())
        if lines:
            for line in list(lines.values()):
                if line.group == group:
                    self._serve(line, None)

    def release_all(self) -> None:
        """Have every pop answer now, and from now on at once: the broker stops."""
        self._is_released = True
        for line in list(self._lines.values()):
            for held in [held for held in line.waiting if held.is_live]:
                self._finish(held)
        self._lines.clear()
        self._by_topic.clear()
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Inside

    def _line(self, group: str, topic: str, wanted: Hashable) -> _Line:
        key = (group, topic, wanted)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(key, group, topic)
            for name in {topic, pop_retry_topic(group, topic)}:
                self._by_topic.setdefault(name.encode(), {})[key] = line
        return line

    def _serve(self, line: _Line, place: Place) -> None:
        line.woken.append(place)
        if line.is_served:
            # A pop that reads may dispatch messages, which wake its own line.
            return
        line.is_served = True
        try:
            while line.woken:
                self._serve_first(line, line.woken.pop())
        finally:
            line.is_served = False
        self._tidy(line)
        self._drop_ended()

    def _serve_first(self, line: _Line, place: Place) -> None:
        """The pops of a line in turn, until one of them finds nothing."""
        while line.waiting:
            held = line.waiting[0]
            if held.is_live:
                if not held.retry(False, place):
                    return
                self._end(held)
            if line.waiting and line.waiting[0] is held:
                line.waiting.popleft()

    def _finish(self, held: _HeldPop) -> None:
        # Before it answers: what it reads may wake its line.
        self._end(held)
        held.retry(True, None)

    def _end(self, held: _HeldPop) -> None:
        if held.is_live:
            held.is_live = False
            held.line.live -= 1
            self._live -= 1
            held.connection.attributes[_HELD].discard(held)

    def _connection_closed(self, connection: Connection) -> None:
        for held in list(connection.attributes[_HELD]):
            self._end(held)
            self._forget(held)
        self._drop_ended()

    def _drop_ended(self) -> None:
        """Deadlines of ended pops lie ahead for minutes: they go when they are the most."""
        if len(self._deadlines) > ENDED_MAX + 2 * self._live:
            self._deadlines = [one for one in self._deadlines if one[2].is_live]
            heapq.heapify(self._deadlines)

    def _forget(self, held: _HeldPop) -> None:
        """Its line may be long: those behind it are passed over when their turn comes."""
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

    def _arm(self) -> None:
        """One timer for the earliest deadline; those of answered pops are passed over."""
        deadlines = self._deadlines
        while deadlines and not deadlines[0][2].is_live:
            heapq.heappop(deadlines)
        if not deadlines:
            return
        due = deadlines[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        delay = max(due - self._clock.monotonic(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now or not deadlines[0][2].is_live):
            held = heapq.heappop(deadlines)[2]
            if held.is_live:
                self._finish(held)
                self._forget(held)
        self._arm()
