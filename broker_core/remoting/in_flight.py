"""Pending requests of this side: request id → future.

One table per connection and direction; the peer's requests have their own ids. Ids start at 1,
because some clients answer 0 with an id of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from broker_core.codec.json.fields import I32_MAX
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost, RequestTimeout

Answer = asyncio.Future[RemotingCommand]
# Answer, timeout and request code.
_Entry = tuple[Answer, asyncio.TimerHandle, int]


class InFlightRequests:
    """Each entry ends once: by its answer, its timeout or the end of the connection.

    Cancelling the future keeps the entry, so that a late answer cannot match another request with
    the same id.
    """

    __slots__ = ("_loop", "_next_opaque", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[int, _Entry] = {}
        self._next_opaque = 1

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, command: RemotingCommand, timeout_ms: float, peer: str) -> Answer:
        """Assign the request's id. Returns the future of its answer."""
        opaque, code = self.next_opaque(), int(command.code)
        command.opaque = opaque
        answer: Answer = self._loop.create_future()
        timer = self._loop.call_later(
            timeout_ms / 1000, self._expire, opaque, code, timeout_ms, peer
        )
        self._waiting[opaque] = (answer, timer, code)
        return answer

    def code_of(self, opaque: int) -> int | None:
        """The code of a pending request."""
        entry = self._waiting.get(opaque)
        return None if entry is None else entry[2]

    def next_opaque(self) -> int:
        """A free id, in the range of a positive i32."""
        opaque = self._next_opaque
        while opaque in self._waiting:
            opaque = opaque + 1 if opaque < I32_MAX else 1
        self._next_opaque = opaque + 1 if opaque < I32_MAX else 1
        return opaque

    def complete(self, response: RemotingCommand) -> bool:
        """Complete the request of a response. Returns False if it is not pending."""
        entry = self._waiting.pop(response.opaque, None)
        if entry is None:
            return False
        answer, timer, _ = entry
        timer.cancel()
        if answer.done():
            return False
        answer.set_result(response)
        return True

    def fail_all(self, reason: str) -> None:
        for answer, timer, _ in self._drain():
            timer.cancel()
            if not answer.done():
                answer.set_exception(ConnectionLost(reason))
                # Marks the exception as retrieved, for callers that no longer wait.
                answer.exception()

    def _drain(self) -> Iterator[_Entry]:
        waiting, self._waiting = self._waiting, {}
        return iter(waiting.values())

    def _expire(self, opaque: int, code: int, timeout_ms: float, peer: str) -> None:
        entry = self._waiting.pop(opaque, None)
        if entry is not None and not entry[0].done():
            text = f"request {code} to {peer} was not answered within {timeout_ms:.0f} ms"
            entry[0].set_exception(RequestTimeout(text))
            entry[0].exception()
