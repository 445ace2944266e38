"""The slave's connection to its master; reconnects with back-off.

Owns one connection at a time and the task that keeps it. `follower_session` decides about the log;
when the log must be cut first, the owner is notified, again with every attempt.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol, cast

from broker_core.errors import LogsDiverged, ReplicationRefused, RmqError
from broker_core.replication.follower_session import FollowerSession, FollowerSettings
from broker_core.replication.handshake import NONCE_SIZE, Identity
from broker_core.replication.log_epochs import Epoch, EpochHistory
from broker_core.replication.replicated_log import ReplicatedLog
from broker_core.runtime.cancelled import end_tasks
from broker_core.runtime.clock import Clock, sleep

_log = logging.getLogger(__name__)

RECEIVE_SIZE: Final = 1 << 20
CONNECT_TIMEOUT_S: Final = 5.0
_DELAY_MIN_S: Final = 0.1
# Short, because a SYNC_MASTER acknowledges nothing without its slave.
_DELAY_MAX_S: Final = 1.0


class MasterAddress(NamedTuple):
    """Address and protocol of a master's replication port."""

    host: str
    port: int
    classic: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class CopiedLog(ReplicatedLog, Protocol):
    """A log that reports when all of it is safe."""

    @property
    def is_settled(self) -> bool:
        """Whether everything appended is safe by now."""


FindMaster = Callable[[], Awaitable[MasterAddress | None]]


class HaClient:
    """`start` and `stop` it on the event loop that owns the log."""

    def __init__(
        self,
        log: CopiedLog,
        identity: Identity,
        history: Callable[[], EpochHistory],
        settings: FollowerSettings,
        clock: Clock,
        *,
        find_master: FindMaster,
        learn: Callable[[tuple[Epoch, ...]], None],
        diverged: Callable[[LogsDiverged], object],
        refused: Callable[[ReplicationRefused], object] = lambda refusal: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """With `tls` the master's certificate must name its address."""
        self._tls = tls
        self._log = log
        self._identity = identity
        self._history = history
        self._settings = settings
        self._clock = clock
        self._find_master = find_master
        self._learn = learn
        self._diverged = diverged
        self._refused = refused
        self._task: asyncio.Task[None] | None = None
        self._link: _MasterConnection | None = None
        self.master: MasterAddress | None = None
        """The master that was connected to last."""
        self.problem: RmqError | None = None
        """Why nothing is being copied; None if the reason is unknown."""

    @property
    def is_copying(self) -> bool:
        """Whether the logs were compared and the master is sending."""
        return self._link is not None and self._link.is_streaming

    def start(self) -> None:
        """Start connecting to the master."""
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Close the link."""
        if self._task is not None:
            await end_tasks((self._task,))
            self._task = None

    def changed(self) -> None:
        """The store has appended or flushed: report the new safe position."""
        if self._link is not None:
            self._link.report()

    def reconnect(self) -> None:
        """Look up the master again; it may have changed."""
        if self._link is not None:
            self._link.end(None)

    async def _run(self) -> None:
        delay_s = _DELAY_MIN_S
        while True:
            copied_from = self._log.end
            try:
                await self._follow()
            except LogsDiverged as error:
                self._note(error)
                # The owner ends this task, unless another change of role is under way.
                self._diverged(error)
            except ReplicationRefused as refusal:
                self._note(refusal)
                self._refused(refusal)
            except (RmqError, OSError) as error:
                problem = error if isinstance(error, RmqError) else _unreachable(error)
                self._note(problem)
            delay_s = _DELAY_MIN_S if self._log.end > copied_from else delay_s
            await sleep(delay_s)
            delay_s = min(delay_s * 2, _DELAY_MAX_S)

    async def _follow(self) -> None:
        """Run one connection until it ends."""
        master = await self._find_master()
        # The first report is both the position to continue from and the safe position.
        if master is None or not self._log.is_settled:
            return
        self.master = master
        settings = self._settings._replace(classic=master.classic)
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(
            lambda: _MasterConnection(self._session(settings), self._clock, self._streams),
            master.host,
            master.port,
            ssl=self._tls,
            server_hostname=None if self._tls is None else master.host,
        )
        try:
            _, link = await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
        except asyncio.TimeoutError:
            raise ReplicationRefused("unreachable", f"{master} did not answer") from None
        self._link = link
        try:
            await link.until_closed()
        finally:
            self._link = None
            link.abort()

    def _session(self, settings: FollowerSettings) -> FollowerSession:
        return FollowerSession(
            self._log,
            self._identity,
            self._history(),
            settings,
            os.urandom(NONCE_SIZE),
            self._clock.monotonic(),
            self._learn,
        )

    def _streams(self) -> None:
        if self.problem is not None or self._log.end == 0:
            _log.info(
                "copying the log of master %s from position %d on", self.master, self._log.end
            )
        self.problem = None

    def _note(self, problem: RmqError) -> None:
        if str(problem) != str(self.problem):
            _log.warning("master %s: %s", self.master, problem)
        self.problem = problem


class _MasterConnection(asyncio.BufferedProtocol):
    """One socket: moves bytes between it and its session."""

    def __init__(self, session: FollowerSession, clock: Clock, begun: Callable[[], object]) -> None:
        self._session = session
        self._begun: Callable[[], object] | None = begun
        self._clock = clock
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_streaming(self) -> bool:
        """Whether the two logs agree."""
        return self._session.is_streaming and not self._ended.done()

    async def until_closed(self) -> None:
        """Wait for the end; raises the error that ended the connection, if any."""
        period_s = self._session.period_ms / 1000
        while not self._ended.done():
            await asyncio.wait((self._ended,), timeout=period_s)
            self._step(lambda: self._session.tick(self._clock.monotonic()))
        self._ended.result()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._step(lambda: self._session.opening(self._clock.monotonic()))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._step(lambda: self._session.receive(self._buffer[:nbytes], self._clock.monotonic()))
        if self._session.is_streaming and self._begun is not None:
            self._begun()
            self._begun = None

    def report(self) -> None:
        """The safe position may have grown."""
        self._step(lambda: self._session.report(self._clock.monotonic()))

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(ReplicationRefused("lost", "the connection to the master was lost"))

    def end(self, error: RmqError | None) -> None:
        """Close; `until_closed` raises the error."""
        if not self._ended.done():
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)
        self.abort()

    def abort(self) -> None:
        """Close the socket."""
        if self._transport is not None:
            self._transport.abort()
        if self._ended.done() and not self._ended.cancelled():
            # The waiting task was cancelled; mark the exception as retrieved.
            self._ended.exception()

    def _step(self, step: Callable[[], bytes]) -> None:
        if self._ended.done():
            return
        try:
            data = step()
        except RmqError as error:
            self.end(error)
            return
        if data and self._transport is not None:
            self._transport.write(data)


def _unreachable(error: OSError) -> ReplicationRefused:
    return ReplicationRefused("unreachable", f"cannot be reached: {error}")
