"""Detects replayed requests with the strict signature.

A session belongs to the connection on which it was first seen, and a connection has one session.
Its sequence only rises, so that neither a request nor a whole recorded connection can be replayed.
A session is remembered as long as a replay could pass the check of its time. Sessions are not
kept over a restart, so requests signed before the start are refused.

The table is limited, and so is the share of one account in it, so that an account that opens many
connections does not lock others out.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker_core.codec.wire.request_signature import StrictStamp
from broker_core.errors import LimitReached
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

# Maximum difference between the clocks of client and server.
CLOCK_SKEW_MAX_MS: Final = 300_000
# The same right after a start, when nothing is known about earlier requests.
_START_SKEW_MS: Final = 5_000
SESSIONS_MAX: Final = 200_000
# One account may use the table's size divided by this.
ACCOUNT_SHARE: Final = 4
# Sessions that one request may remove; more than it can add.
_SWEEP_MAX: Final = 64

# Key of `Connection.attributes`: the session of this connection.
_SESSION: Final = "access.strict_session"


class _Session:
    __slots__ = ("account", "connection", "forget_at", "name", "sequence")

    def __init__(self, name: str, account: str, connection: Connection) -> None:
        self.name = name
        self.account = account
        self.connection: Connection | None = connection
        self.sequence = 0
        # Set when the connection has ended: after this time a replay is too old to pass.
        self.forget_at = 0.0


class StrictSessions:
    """Event loop only."""

    def __init__(self, clock: Clock, sessions_max: int = SESSIONS_MAX) -> None:
        self._clock = clock
        self._sessions_max = sessions_max
        self._account_max = max(sessions_max // ACCOUNT_SHARE, 1)
        self._started_ms = clock.wall_ms()
        self._sessions: dict[str, _Session] = {}
        self._counts: dict[str, int] = {}
        # Sessions whose connection has ended, in order of `forget_at`.
        self._ended: deque[_Session] = deque()

    def __len__(self) -> int:
        return len(self._sessions)

    def problem(self, connection: Connection, stamp: StrictStamp, account: str = "") -> str:
        """Why a correctly signed request is refused; "" if it is accepted.

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
            if _SESSION in connection.attributes:
                return "its connection has another session: one is used for all requests"
            session = self._opened(connection, stamp.session, account)
        if session.connection is not connection:
            return "its session belongs to another connection"
        if stamp.sequence <= session.sequence:
            return "it was sent before"
        session.sequence = stamp.sequence
        return ""

    def _opened(self, connection: Connection, name: str, account: str) -> _Session:
        self.forget_old()
        if len(self._sessions) >= self._sessions_max:
            raise LimitReached(f"{self._sessions_max} signed connections in a few minutes")
        count = self._counts.get(account, 0)
        if count >= self._account_max:
            raise LimitReached(
                f"{count} signed connections of account {account} in a few minutes, at most "
                f"{self._account_max}: keep connections open"
            )
        session = self._sessions[name] = _Session(name, account, connection)
        self._counts[account] = count + 1
        connection.attributes[_SESSION] = name
        connection.on_close(lambda _: self._closed(session))
        return session

    def _closed(self, session: _Session) -> None:
        session.connection = None
        session.forget_at = self._clock.monotonic() + 2 * CLOCK_SKEW_MAX_MS / 1000
        self._ended.append(session)

    def forget_old(self, count_max: int = _SWEEP_MAX) -> int:
        """Drop sessions that can no longer be replayed, up to a limit. Returns how many."""
        now = self._clock.monotonic()
        count = 0
        # They are in order of `forget_at`.
        while count < count_max and self._ended and self._ended[0].forget_at <= now:
            session = self._ended.popleft()
            del self._sessions[session.name]
            left = self._counts[session.account] - 1
            if left:
                self._counts[session.account] = left
            else:
                del self._counts[session.account]
            count += 1
        return count
