"""The master's replication port: accepts slaves and sends them the log.

Owns the connections; `leader_session` decides. A slave that does not read gets no more than its
write buffer holds, and is closed when it stays silent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from broker_core.errors import ReplicationRefused, RmqError
from broker_core.replication.handshake import NONCE_SIZE, Identity
from broker_core.replication.leader_session import LeaderSession, LeaderSettings, Phase
from broker_core.replication.log_epochs import EpochHistory
from broker_core.replication.replica_set import Replica, ReplicaSet
from broker_core.replication.replicated_log import ReplicatedLog
from broker_core.runtime.clock import Clock
from broker_core.runtime.limited_log import LimitedLog
from broker_core.runtime.listener import Listener
from broker_core.runtime.peer_host import counted_host, host_of

_log = logging.getLogger(__name__)

# Maximum bytes in the write buffer of a slave's connection; several frames fit.
WRITE_BUFFER_HIGH: Final = 4 << 20
# One slave's share of a turn of the loop.
TURN_SIZE: Final = 4 << 20
HANDSHAKE_TIMEOUT_S: Final = 10.0
# Connections that have not completed the handshake, besides the slaves.
UNAUTHENTICATED_MAX: Final = 16
_LOG_INTERVAL_S: Final = 1.0
_BACKLOG: Final = 100


class HaServer:
    """`serve` it on the event loop that owns the log."""

    def __init__(
        self,
        log: ReplicatedLog,
        identity: Identity,
        history: EpochHistory,
        replicas: ReplicaSet,
        settings: LeaderSettings,
        clock: Clock,
        newer_seen: Callable[[int], object] = lambda epoch: None,
        turned: Callable[[], object] = lambda: None,
    ) -> None:
        """`newer_seen(epoch)` is called for slaves that know a newer master.

        `turned()` is called once per turn in which the log may have grown, and every second.
        """
        self.log = log
        self.identity = identity
        self.history = history
        self.replicas = replicas
        self.settings = settings
        self.clock = clock
        self._newer_seen = newer_seen
        self._turned = turned
        # In the order in which they came.
        self._connections: dict[_SlaveConnection, None] = {}
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_due = False
        # Appends since all slaves were fed; whether there was one in the previous turn.
        self._growths = 0
        self._grew_once = False
        self._empty: asyncio.Event | None = None
        self._reads: set[asyncio.Future[bytes]] = set()
        self._rejections = LimitedLog(_log, clock.monotonic, 1, _LOG_INTERVAL_S)
        # Ends of connections that never were a slave's.
        self.limited_log = LimitedLog(_log, clock.monotonic)

    async def serve(self, bound: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Accept on a bound socket; with `tls` only encrypted connections."""
        self._listener = Listener(
            bound, lambda: _SlaveConnection(self), _BACKLOG, tls, HANDSHAKE_TIMEOUT_S
        )
        self._schedule()

    async def stop(self) -> None:
        """Close everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self._connections):
            connection.abort("the master is stopping")
        if self._listener is not None:
            await self._listener.wait_closed()
            self._listener = None
        if self._connections:
            self._empty = asyncio.Event()
            await self._empty.wait()
        if self._reads:
            await asyncio.wait(self._reads)
            # Their callbacks run in the next turn.
            await asyncio.sleep(0)

    def wake(self) -> None:
        """The log has grown: feed all slaves in the next turn, so that appends share a frame.

        A single append is sent at once: lower latency for a single producer on SYNC_MASTER.
        """
        if not self._connections:
            return
        self._growths += 1
        if self._wake_due:
            return
        self._wake_due = True
        asyncio.get_running_loop().call_soon(self._pump_all)
        if self._grew_once and self.replicas.are_waited_for:
            for connection in tuple(self._connections):
                if connection.is_idle:
                    connection.pump()

    # What connections call

    def opened(self, connection: _SlaveConnection, address: str) -> bool:
        """Register a connection; False if it must be closed at once."""
        self._connections[connection] = None
        unauthenticated = [other for other in self._connections if other.is_unauthenticated]
        if len(unauthenticated) <= UNAUTHENTICATED_MAX:
            return True
        hosts = Counter(other.host for other in unauthenticated)
        most, count = hosts.most_common(1)[0]
        if count > hosts[connection.host] + 1:
            # Otherwise one host could keep the slaves of others away.
            oldest = next(other for other in unauthenticated if other.host == most)
            oldest.abort("too many connections of its host to the replication port")
            return True
        self._rejections.info("slave %s: too many connections to the replication port", address)
        return False

    def reading(self, read: asyncio.Future[bytes]) -> None:
        """Register a read of the log on a thread, which must end before the log is closed."""
        self._reads.add(read)
        read.add_done_callback(self._reads.discard)

    def closed(self, connection: _SlaveConnection) -> None:
        self._connections.pop(connection, None)
        if self._empty is not None and not self._connections:
            self._empty.set()

    def admit(self, identity: Identity, seen: int) -> ReplicationRefused | None:
        """Whether a slave of ours may have the log of this master."""
        current = self.history.current
        if current is not None and seen > current.number:
            self._newer_seen(seen)
            return ReplicationRefused(
                "stale master",
                f"this master's epoch is {current.number}, the slave has seen {seen}",
            )
        return self.replicas.refuse(identity)

    def joined(self, session: LeaderSession, address: str) -> Replica:
        """A session begins to copy; an older connection of the same slave is closed."""
        older = self.replicas.same_store(session.peer) if session.peer is not None else None
        if older is not None:
            for connection in tuple(self._connections):
                if connection.replica is older:
                    connection.abort("replaced by a new connection of the same slave")
            self.replicas.leave(older)
        if self.replicas.is_full:
            raise ReplicationRefused("limit", "haSlavesMax slaves are already connected")
        replica = Replica(address, session.peer, session.position)
        self.replicas.join(replica)
        return replica

    def _pump_all(self) -> None:
        self._wake_due = False
        self._grew_once = self._growths == 1
        self._growths = 0
        for connection in tuple(self._connections):
            connection.pump()
        self._turned()

    def _schedule(self) -> None:
        settings = self.settings
        period_ms = min(1_000, settings.heartbeat_ms / 4, settings.housekeeping_ms / 4)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(period_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._schedule()
        for connection in tuple(self._connections):
            connection.tick()
        self.replicas.refresh()
        self._turned()


class _SlaveConnection(asyncio.Protocol):
    """One socket: moves bytes between it and its session."""

    def __init__(self, server: HaServer) -> None:
        self._server = server
        self._session: LeaderSession | None = None
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self.host = ""
        self._paused = False
        self._reading: asyncio.Future[bytes] | None = None
        self.replica: Replica | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)
        peer = transport.get_extra_info("peername")
        self.host = counted_host(host_of(peer))
        self._address = f"{peer[0]}:{peer[1]}" if peer else "local"
        self._session = LeaderSession(
            server.log,
            server.identity,
            server.history,
            server.settings,
            os.urandom(NONCE_SIZE),
            server.clock.monotonic(),
            server.admit,
        )
        if not server.opened(self, self._address):
            self._session = None
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        session = self._session
        if session is None:
            return
        try:
            moved = session.receive(data, self._server.clock.monotonic())
            if session.phase is Phase.STREAM and self.replica is None:
                self.replica = self._server.joined(session, self._address)
            elif moved and self.replica is not None:
                self._server.replicas.reached(self.replica, session.position)
        except RmqError as error:
            self._refuse(session, error)
            return
        if session.has_more:
            self.pump()

    @property
    def is_unauthenticated(self) -> bool:
        """Whether its handshake is under way."""
        return self._session is not None and self.replica is None

    @property
    def is_idle(self) -> bool:
        """Whether its slave has reported everything that it was sent."""
        return self._session is not None and self._session.is_idle

    def pump(self) -> None:
        """Write frames until the log ends, the socket is full, or the turn is used up."""
        session, transport = self._session, self._transport
        if session is None or transport is None:
            return
        turn = 0
        try:
            while not self._paused:
                data = session.next_bytes(self._server.clock.monotonic())
                if not data:
                    break
                transport.write(data)
                turn += len(data)
                if turn >= TURN_SIZE:
                    asyncio.get_running_loop().call_soon(self.pump)
                    break
            self._read_ahead(session)
        except RmqError as error:
            self._refuse(session, error)
        if self.replica is not None:
            self.replica.sent = session.sent

    def _read_ahead(self, session: LeaderSession) -> None:
        """Read bytes on a thread if they may not be in memory."""
        wanted = session.wanted
        read = None
        if wanted is not None and self._reading is None:
            read = self._server.log.read_later(*wanted)
        if wanted is not None and read is not None:
            loop = asyncio.get_running_loop()
            run, done = read
            self._reading = loop.run_in_executor(None, run)
            self._server.reading(self._reading)
            self._reading.add_done_callback(partial(self._was_read, wanted[0], done))

    def _was_read(
        self, position: int, done: Callable[[], object], future: asyncio.Future[bytes]
    ) -> None:
        done()
        self._reading = None
        session = self._session
        if session is None or future.cancelled():
            return
        error = future.exception()
        if error is None:
            session.give(position, future.result())
            self.pump()
        elif isinstance(error, RmqError):
            self._refuse(session, error)
        else:
            raise error

    def tick(self) -> None:
        """Send heartbeats and close silent peers."""
        if self._session is None:
            return
        try:
            self._session.tick(self._server.clock.monotonic())
        except ReplicationRefused as refusal:
            self.abort(str(refusal))
            return
        self.pump()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    def abort(self, reason: str) -> None:
        """Close without sending the write buffer."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection was closed")
        self._server.closed(self)

    def _refuse(self, session: LeaderSession, error: RmqError) -> None:
        if self._transport is not None and session.reply:
            self._transport.write(session.reply)
        self._end(str(error))
        if self._transport is not None:
            self._transport.close()

    def _end(self, reason: str) -> None:
        if self._session is None:
            return
        self._session = None
        if self.replica is None:
            self._server.limited_log.info("slave %s: %s", self._address, reason)
        else:
            _log.info("slave %s: %s", self._address, reason)
            self._server.replicas.leave(self.replica)
