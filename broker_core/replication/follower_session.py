"""The slave's side of one replication connection. Pure: bytes and times in, bytes out.

Appends the bytes of the master at the same positions and reports the safe position. With a master
of ours it compares the two logs first; on any mismatch the session ends and nothing is appended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker_core.errors import LogsDiverged, ReplicationRefused
from broker_core.replication.ha_frames import FrameParser, encode_report
from broker_core.replication.handshake import (
    MAGIC,
    NONCE_SIZE,
    WINDOW_SIZE,
    Claim,
    HandshakeParser,
    Hello,
    Identity,
    Signing,
    Verdict,
    Welcome,
    encode_handshake,
)
from broker_core.replication.log_epochs import Epoch, EpochHistory, agreed_end, was_restarted
from broker_core.replication.replicated_log import ReplicatedLog


class FollowerSettings(NamedTuple):
    """`classic`: the master is Apache's, which knows no handshake."""

    classic: bool = False
    report_ms: int = 5_000
    housekeeping_ms: int = 20_000
    key: bytes = b""


class FollowerSession:
    """One connection to a master. The owner ends it when a method raises."""

    def __init__(
        self,
        log: ReplicatedLog,
        identity: Identity,
        history: EpochHistory,
        settings: FollowerSettings,
        nonce: bytes,
        now: float,
        learn: Callable[[tuple[Epoch, ...]], None],
    ) -> None:
        """`learn(epochs)` stores the master's epochs durably before the first byte is appended."""
        self._log = log
        self._identity = identity
        self._history = history
        self._settings = settings
        self._nonce = nonce
        self._learn = learn
        self._signing = Signing(settings.key, nonce)
        self._messages = HandshakeParser()
        self._frames = FrameParser()
        self._last_read = self._last_report = now
        self._reported = -1
        self._greeted = False
        self._appending = False
        self._claimed: Claim | None = None
        self._welcome: Welcome | None = None
        self.is_streaming = settings.classic

    def opening(self, now: float) -> bytes:
        """The first bytes to write. Everything in the log is safe when a session begins."""
        if self._settings.classic:
            self._reported = self._log.end
            return encode_report(self._log.end)
        hello = Hello(self._identity, self._history.seen)
        return MAGIC + self._nonce + encode_handshake(hello, self._signing)

    def receive(self, data: memoryview, now: float) -> bytes:
        """Handle bytes of the master; returns the bytes to write.

        Raises `ReplicationRefused`, `LogsDiverged` when the log here must be cut first, and the
        store's errors when bytes cannot be stored.
        """
        self._last_read = now
        if self.is_streaming:
            return self._take_frames(data, now)
        self._messages.receive(data)
        return self._advance(now)

    @property
    def period_ms(self) -> float:
        """Interval between two calls of `tick`."""
        return min(1_000, self._settings.report_ms / 4, self._settings.housekeeping_ms / 4)

    def report(self, now: float) -> bytes:
        """A report when the safe position has grown, or when one is due.

        The log may request it from inside `receive`, as soon as the append is safe. Pieces that
        arrived together share one report.
        """
        if not self.is_streaming or self._appending:
            return b""
        position = self._log.safe_end
        is_late = (now - self._last_report) * 1000 >= self._settings.report_ms
        if position <= self._reported and not is_late:
            return b""
        self._last_report = now
        self._reported = max(position, self._reported)
        return encode_report(self._reported)

    def tick(self, now: float) -> bytes:
        """A report when one is due; raises when the master has been silent for too long."""
        if (now - self._last_read) * 1000 > self._settings.housekeeping_ms:
            raise ReplicationRefused(
                "silent",
                f"the master sent nothing for {self._settings.housekeeping_ms} ms",
            )
        return self.report(now)

    def _advance(self, now: float) -> bytes:
        if not self._greeted:
            greeting = self._messages.take(len(MAGIC) + NONCE_SIZE)
            if greeting is None:
                return b""
            if greeting[: len(MAGIC)] != MAGIC:
                raise ReplicationRefused(
                    "protocol",
                    "the master did not answer the handshake; if it is an Apache broker without a "
                    "name server, set haClassicMaster=true",
                )
            self._greeted = True
            self._signing = Signing(self._settings.key, self._nonce + greeting[len(MAGIC) :])
        if self._welcome is None:
            welcome = self._messages.next(Welcome, self._signing)
            return b"" if welcome is None else self._claim(welcome)
        verdict = self._messages.next(Verdict, self._signing)
        if verdict is None or self._claimed is None:
            return b""
        if verdict.position != self._claimed.position:
            raise ReplicationRefused("protocol", "the verdict is for another position")
        self._agree(self._welcome)
        self.is_streaming = True
        rest, self._messages.rest = self._messages.rest, b""
        return self._take_frames(memoryview(rest), now)

    def _claim(self, welcome: Welcome) -> bytes:
        """Find where the two logs agree and ask to continue from there."""
        self._welcome = welcome
        self._check_identity(welcome)
        log = self._log
        epochs = self._history.until(log.end).epochs
        if log.end == log.start and (not epochs or log.end < welcome.start):
            claim = Claim(welcome.start, welcome.start, 0, ())
        else:
            claim = self._claim_of_data(welcome, epochs)
        self._claimed = claim
        return encode_handshake(claim, self._signing)

    def _claim_of_data(self, welcome: Welcome, epochs: tuple[Epoch, ...]) -> Claim:
        log = self._log
        agreed = agreed_end(epochs, log.end, welcome.epochs, welcome.end)
        if agreed is None:
            raise ReplicationRefused(
                "foreign",
                "this store holds another log than the master's (no common epoch); empty its "
                "directory to copy the master's",
            )
        if agreed < log.start:
            raise ReplicationRefused(
                "foreign",
                f"the logs agree up to {agreed}, and this one starts at {log.start}; empty its "
                "directory to copy the master's",
            )
        if agreed < log.end:
            if welcome.relies_on_slaves and was_restarted(epochs, welcome.epochs):
                # Messages that waited for this slave were acknowledged.
                raise ReplicationRefused(
                    "lost tail",
                    f"the master has lost its log from {agreed} on, which this slave has up to "
                    f"{log.end} and which may be acknowledged: stop the master and promote this "
                    "slave; to discard these messages, empty this slave's directory",
                )
            raise LogsDiverged(
                agreed,
                log.end,
                f"the logs agree up to {agreed}; this one differs from there up to {log.end}",
            )
        if log.end < welcome.start:
            raise ReplicationRefused(
                "behind",
                f"this log ends at {log.end} and the master's starts at {welcome.start}: retention "
                "removed the part between; empty this store's directory to copy the log again",
            )
        window = max(log.start, welcome.start, log.end - WINDOW_SIZE)
        return Claim(log.end, window, log.checksum(window, log.end), epochs)

    def _check_identity(self, welcome: Welcome) -> None:
        ours, theirs = self._identity, welcome.identity
        if (ours.cluster_name, ours.broker_name) != (theirs.cluster_name, theirs.broker_name):
            raise ReplicationRefused(
                "foreign",
                f"the master is {theirs.broker_name!r:.120} of {theirs.cluster_name!r:.120}, not "
                f"{ours.broker_name!r} of {ours.cluster_name!r}",
            )
        if welcome.file_size != self._log.file_size:
            raise ReplicationRefused(
                "file size",
                f"mappedFileSizeCommitLog is {welcome.file_size} at the master and "
                f"{self._log.file_size} here; give both the same value",
            )
        current = welcome.epochs[-1].number if welcome.epochs else 0
        if current < self._history.seen:
            raise ReplicationRefused(
                "stale master",
                f"this master's epoch {current} is older than {self._history.seen}, which this "
                "slave has seen: a newer master has replaced it",
            )

    def _agree(self, welcome: Welcome) -> None:
        """The master's epochs of the common log, before its first byte."""
        self._learn(welcome.epochs)
        if self._claimed is not None and self._claimed.position != self._log.end:
            self._log.begin_at(self._claimed.position)

    def _take_frames(self, data: memoryview, now: float) -> bytes:
        self._appending = True
        try:
            for position, body in self._frames.receive(data):
                self._take(position, body)
        finally:
            self._appending = False
        self._log.settle()
        return self.report(now)

    def _take(self, position: int, body: memoryview) -> None:
        log = self._log
        if position != log.end:
            if log.end != log.start or log.end != 0:
                raise ReplicationRefused(
                    "position",
                    f"the master sent the log from {position} on, but this log ends at {log.end}",
                )
            log.begin_at(position)
        if body:
            log.append(body)
