"""The master's side of one replication connection. Pure: bytes and times in, bytes out.

Sends nothing before the slave's first bytes. The first eight bytes identify the slave: Apache's
slaves send a position, ours the magic, which begins the handshake. A report outside the range from
the last report to the last byte sent ends the session and acknowledges nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from broker_core.errors import ReplicationRefused
from broker_core.replication.ha_frames import REPORT, ReportParser, encode_header
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
    encode_refusal,
)
from broker_core.replication.log_epochs import EpochHistory, agreed_end
from broker_core.replication.read_ahead import ReadAhead
from broker_core.replication.replicated_log import ReplicatedLog


class LeaderSettings(NamedTuple):
    """Sizes and times of one side."""

    classic_size: int = 32 << 10
    frame_size: int = 1 << 20
    heartbeat_ms: int = 5_000
    housekeeping_ms: int = 20_000
    key: bytes = b""
    relies_on_slaves: bool = False
    needs_key: bool = False
    """The broker has accounts: slaves without a key are rejected."""
    far_behind: int = 16 << 20
    """The last bytes of the log, which are expected to be in memory."""


class Phase(enum.Enum):
    """Progress of a session."""

    FIRST = "waiting for the slave's first bytes"
    GREETING = "waiting for the slave's random bytes"
    HELLO = "waiting for the introduction"
    CLAIM = "waiting for the slave's position"
    STREAM = "copying"


Admit = Callable[[Identity, int], ReplicationRefused | None]


class LeaderSession:
    """One slave. The owner moves bytes both ways and ends the session when a method raises."""

    def __init__(
        self,
        log: ReplicatedLog,
        identity: Identity,
        history: EpochHistory,
        settings: LeaderSettings,
        nonce: bytes,
        now: float,
        admit: Admit,
    ) -> None:
        self._log = log
        self._identity = identity
        self._history = history
        self._settings = settings
        self._nonce = nonce
        self._admit = admit
        self._signing = self._both = Signing(settings.key)
        self._messages = HandshakeParser()
        self._reports = ReportParser()
        self._begun = self._last_read = self._last_write = now
        self._first_report = 0
        self._frame_size = settings.classic_size
        self._ahead = ReadAhead(settings.far_behind)
        self.phase = Phase.FIRST
        self.peer: Identity | None = None
        """Identity that a slave of ours has sent."""
        self.position = 0
        """The position that the slave has reported."""
        self.sent = 0
        """End of the log bytes passed to the connection."""
        self.reply = b""
        """Handshake bytes to write before anything else."""

    def receive(self, data: bytes | memoryview, now: float) -> bool:
        """Handle bytes of the slave; True when it has reported a new position.

        Raises `ReplicationRefused`; `reply` may then hold bytes to send before closing.
        """
        self._last_read = now
        try:
            if self.phase is Phase.STREAM:
                return self._take_reports(data)
            self._messages.receive(data)
            return self._advance()
        except ReplicationRefused as refusal:
            if self.phase in (Phase.HELLO, Phase.CLAIM):
                self.reply += encode_refusal(refusal, self._signing)
            raise

    def next_bytes(self, now: float) -> bytes:
        """The next bytes to write; empty when there are none."""
        reply, self.reply = self.reply, b""
        if reply or self.phase is not Phase.STREAM:
            if reply:
                self._last_write = now
            return reply
        position, log = self.sent, self._log
        if position == log.end:
            return self._heartbeat(position, now)
        if position < log.start:
            raise ReplicationRefused(
                "behind",
                f"the slave needs the log from {position} on, but it starts at {log.start}",
            )
        data = self._ahead.take(position, self._frame_size)
        if data is None:
            if self._ahead.is_far(position, log.end):
                return b""
            data = memoryview(log.read(position, min(self._frame_size, log.end - position)))
        if not data:
            return self._heartbeat(position, now)
        self.sent = position + len(data)
        self._last_write = now
        return b"".join((encode_header(position, len(data)), data))

    @property
    def is_idle(self) -> bool:
        """Whether the slave has reported everything that it was sent."""
        return self.phase is Phase.STREAM and self.position == self.sent

    @property
    def has_more(self) -> bool:
        """Whether there is something to write besides heartbeats."""
        return bool(self.reply) or (self.phase is Phase.STREAM and self.sent < self._log.end)

    @property
    def wanted(self) -> tuple[int, int] | None:
        """(position, size) of bytes to read for this slave on a thread, not on the loop."""
        if self.phase is not Phase.STREAM:
            return None
        return self._ahead.wanted(self.sent, self._log.end)

    def give(self, position: int, data: bytes) -> None:
        """Pass in the bytes that `wanted` asked for."""
        self._ahead.give(position, data)

    def tick(self, now: float) -> None:
        """End a session whose slave has been silent, or its handshake under way, for too long."""
        if (now - self._last_read) * 1000 > self._settings.housekeeping_ms:
            raise ReplicationRefused(
                "silent",
                f"the slave sent nothing for {self._settings.housekeeping_ms} ms",
            )
        handshake_ms = 0.0 if self.phase is Phase.STREAM else (now - self._begun) * 1000
        if handshake_ms > self._settings.housekeeping_ms:
            raise ReplicationRefused(
                "handshake",
                f"no handshake within {self._settings.housekeeping_ms} ms",
            )

    def _heartbeat(self, position: int, now: float) -> bytes:
        if (now - self._last_write) * 1000 < self._settings.heartbeat_ms:
            return b""
        self._last_write = now
        return encode_header(position, 0)

    def _advance(self) -> bool:
        if self.phase is Phase.FIRST:
            word = self._messages.take(len(MAGIC))
            if word is None:
                return False
            if word != MAGIC:
                return self._begin_classic(REPORT.unpack(word)[0])
            self.phase = Phase.GREETING
        if self.phase is Phase.GREETING:
            nonce = self._messages.take(NONCE_SIZE)
            if nonce is None:
                return False
            self._signing = Signing(self._settings.key, nonce)
            self._both = Signing(self._settings.key, nonce + self._nonce)
            self.reply += MAGIC + self._nonce
            self.phase = Phase.HELLO
        if self.phase is Phase.HELLO:
            hello = self._messages.next(Hello, self._signing)
            if hello is None:
                return False
            self._signing = self._both
            self._welcome(hello)
        claim = self._messages.next(Claim, self._signing)
        if claim is None:
            return False
        self._judge(claim)
        rest, self._messages.rest = self._messages.rest, b""
        if rest:
            self._take_reports(rest)
        return True

    def _begin_classic(self, report: int) -> bool:
        """Apache's slave: 0 means the start of the last file, any other number is the position."""
        if self._settings.key:
            raise ReplicationRefused("key", "haAuthKey is set, and an Apache slave has no key")
        self._check_open()
        log = self._log
        if report == 0:
            self.sent = max(log.end - log.end % log.file_size, log.start)
        elif log.start <= report <= log.end:
            self.sent = report
        else:
            raise ReplicationRefused(
                "position",
                f"a slave asked for position {report}, the log is [{log.start}, {log.end})",
            )
        self._first_report = self.position = report
        self.phase = Phase.STREAM
        rest, self._messages.rest = self._messages.rest, b""
        if rest:
            self._take_reports(rest)
        return True

    def _check_open(self) -> None:
        if self._settings.needs_key and not self._settings.key:
            raise ReplicationRefused(
                "key",
                "the master has accounts (aclEnable=true) and no key for slaves: set haAuthKeyFile "
                "on both; or haAllowWithoutKey=true on the master, for Apache's slaves",
            )

    def _welcome(self, hello: Hello) -> None:
        self._check_open()
        ours, theirs = self._identity, hello.identity
        for name, mine, other in (
            ("brokerClusterName", ours.cluster_name, theirs.cluster_name),
            ("brokerName", ours.broker_name, theirs.broker_name),
        ):
            if mine != other:
                raise ReplicationRefused(
                    "foreign", f"the slave has {name}={other!r:.120}, this master has {mine!r:.120}"
                )
        if theirs.store_id == ours.store_id:
            raise ReplicationRefused("self", "the slave has the store of this master")
        if theirs.broker_id == 0:
            raise ReplicationRefused("id", "a slave needs a brokerId above 0")
        refusal = self._admit(theirs, hello.seen)
        if refusal is not None:
            raise refusal
        self.peer = theirs
        log = self._log
        relies = self._settings.relies_on_slaves
        welcome = Welcome(ours, log.start, log.end, log.file_size, self._history.epochs, relies)
        self.reply += encode_handshake(welcome, self._signing)
        self.phase = Phase.CLAIM

    def _judge(self, claim: Claim) -> None:
        """Compare the logs before streaming: first the epochs, then the last bytes."""
        log, position = self._log, claim.position
        if not log.start <= position <= log.end:
            raise ReplicationRefused(
                "position",
                f"the slave's log ends at {position}, the master's is [{log.start}, {log.end})",
            )
        if claim.epochs:
            agreed = agreed_end(self._history.epochs, log.end, claim.epochs, position)
            if agreed is None or agreed < position:
                raise ReplicationRefused("diverged", f"the logs agree up to {agreed} only")
            window = claim.window_start
            if not max(log.start, position - WINDOW_SIZE) <= window <= position:
                raise ReplicationRefused(
                    "protocol",
                    f"the slave sent a checksum of the wrong range [{window}, {position})",
                )
            if log.checksum(window, position) != claim.checksum:
                raise ReplicationRefused(
                    "diverged",
                    f"the bytes [{window}, {position}) of the slave differ from the master's; "
                    "empty the slave's directory to copy the log again",
                )
        elif position != log.start:
            raise ReplicationRefused(
                "protocol", "a log without epochs must be copied from its start"
            )
        self.sent = self.position = position
        self._frame_size = self._settings.frame_size
        self.reply += encode_handshake(Verdict(position), self._signing)
        self.phase = Phase.STREAM

    def _take_reports(self, data: bytes | memoryview) -> bool:
        before = self.position
        for report in self._reports.receive(data):
            # An empty Apache slave repeats 0 until the first byte has arrived.
            repeated = report == self._first_report == self.position
            if not repeated and not self.position <= report <= self.sent:
                raise ReplicationRefused(
                    "position",
                    f"a slave reported {report} after {self.position}, but was sent only up to "
                    f"{self.sent}",
                )
            self.position = report
        return self.position != before
