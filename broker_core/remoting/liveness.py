"""Detects dead peers by times and byte counts. Pure.

A peer may be idle for a limited time, shorter within a frame and while it does not read. While this
side has paused reading, silence of the peer is ignored.
"""

from __future__ import annotations

from broker_core.config import RemotingLimits


class Liveness:
    """The times of one connection, in seconds of a monotonic clock."""

    __slots__ = ("_limits", "_sent_at", "_sent_total", "last_activity", "partial_since")

    def __init__(self, limits: RemotingLimits, now: float) -> None:
        self._limits = limits
        self.last_activity = now
        # When the partial frame began.
        self.partial_since: float | None = None
        # Bytes sent to the peer, and when that number last grew.
        self._sent_total = 0
        self._sent_at = now

    def reason_to_close(
        self, now: float, *, written_total: int, unsent_size: int, is_reading: bool, is_busy: bool
    ) -> str:
        """Why to close the connection; "" if it is alive.

        `is_busy`: a request is pending in one of the directions.
        """
        limits = self._limits
        sent_total = written_total - unsent_size
        if sent_total != self._sent_total:
            self.last_activity = now
        if sent_total != self._sent_total or not unsent_size:
            self._sent_total, self._sent_at = sent_total, now
        elif now - self._sent_at > limits.write_stall_timeout_ms / 1000:
            return "the peer does not read"
        if not is_reading:
            self.last_activity = now
            self.restart_partial(now)
        elif (
            self.partial_since is not None
            and now - self.partial_since > limits.partial_frame_timeout_ms / 1000
        ):
            return "a frame did not arrive completely in time"
        elif not is_busy and now - self.last_activity > limits.idle_timeout_ms / 1000:
            return "idle"
        return ""

    def restart_partial(self, now: float) -> None:
        """Restart the timeout of the partial frame."""
        if self.partial_since is not None:
            self.partial_since = now
