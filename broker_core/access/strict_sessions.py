"""Tells originals from copies among requests with the strict signature.

A session belongs to the connection on which it was first seen, and its sequence only rises, so that
neither a request nor a whole recorded connection can be played again. A session is remembered as
long as a copy of it could still pass the check of its time. What was seen before a restart is
forgotten, so times before the start are refused.
"""

from __future__ import annotations

from typing import Final

from broker_core.codec.request_signature import StrictStamp
from broker_core.errors import LimitReached
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

# How far the clocks of client and server may be apart.
CLOCK_SKEW_MAX_MS: Final = 300_000
# The same right after a start, when nothing is known about earlier requests.
_START_SKEW_MS: Final = 5_000
SESSIONS_MAX: Final = 200_000


class _Session:
    __slots__ = ("connection", "forget_at", "sequence")

    def __init__(self, connection: Connection) -> None:
        self.connection: Connection | None = connection
        self.sequence = 0
        # When the connection is gone: from when on no copy can be in time.
        self.forget_at = 0.0


class StrictSessions:
    """Event loop only."""

    def __init__(self, clock: Clock, sessions_max: int = SESSIONS_MAX) -> None:
        self._clock = clock
        self._sessions_max = sessions_max
        self._started_ms = clock.wall_ms()
        self._sessions: dict[str, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def problem(self, connection: Connection, stamp: StrictStamp) -> str:
        """Why a request whose signature is right is refused all the same; "" if it is not.

        Raises `LimitReached` when too many sessions are remembered.
        """
        now_ms = self._clock.wall_ms()
        if abs(now_ms - stamp.time_ms) > CLOCK_SKEW_MAX_MS:
            apart_s = (now_ms - stamp.time_ms) // 1000
            return f"it was signed {apart_s} s ago by this server's clock"
        session = self._sessions.get(stamp.session)
        if session is None:
            if stamp.time_ms < self._started_ms - _START_SKEW_MS:
                return "it was signed before this server started"
            session = self._opened(connection, stamp.session)
        if session.connection is not connection:
            return "its session belongs to another connection"
        if stamp.sequence <= session.sequence:
            return "it was sent before"
        session.sequence = stamp.sequence
        return ""

    def _opened(self, connection: Connection, name: str) -> _Session:
        if len(self._sessions) >= self._sessions_max:
            self.forget_old()
        if len(self._sessions) >= self._sessions_max:
            raise LimitReached(f"{self._sessions_max} signed connections in a few minutes")
        session = self._sessions[name] = _Session(connection)
        connection.on_close(lambda _: self._closed(session))
        return session

    def _closed(self, session: _Session) -> None:
        session.connection = None
        session.forget_at = self._clock.monotonic() + 2 * CLOCK_SKEW_MAX_MS / 1000

    def forget_old(self) -> None:
        """Drop sessions that cannot be imitated any more."""
        now = self._clock.monotonic()
        self._sessions = {
            name: session
            for name, session in self._sessions.items()
            if session.connection is not None or session.forget_at > now
        }
