"""A broker: opens its store, serves its port, registers, and puts everything away again.

Composition root of the process. Runs on the event loop that `start` was called on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from collections.abc import Callable
from functools import partial

from broker_core.broker.broker_config import BrokerConfig
from broker_core.broker.broker_parts import BrokerParts
from broker_core.broker.broker_security import BrokerSecurity, ReplicationTls
from broker_core.broker.broker_upkeep import BrokerUpkeep
from broker_core.broker.kept_roles import stored_history
from broker_core.broker.newer_master import (
    NewerMaster,
    find_newer_master,
    id_is_taken,
    next_free_id,
    place_taken,
)
from broker_core.broker.observability import Observability
from broker_core.broker.replication_role import ReplicationRole
from broker_core.broker.role_changes import Change, RoleChanges, cut_store
from broker_core.broker.slave_metadata import adopt_topics
from broker_core.codec.plain_send import request_decoder
from broker_core.config import RemotingLimits
from broker_core.errors import InvalidArgument, LogsDiverged, RmqError, ServiceNotAvailable
from broker_core.protocol_codes import BrokerRole, ResponseCode
from broker_core.remoting.server import RemotingServer, bind_address
from broker_core.replication.log_epochs import LastRole
from broker_core.runtime.clock import Clock, SystemClock
from broker_core.storage.posix_file_system import PosixFileSystem
from broker_core.store.message_store import MessageStore
from broker_core.store.running_flags import Running

_log = logging.getLogger(__name__)

# Old clients send on this port, this far below the ordinary one.
VIP_PORT_DISTANCE = 2
# A clean stop takes less than two seconds in all.
GRACE_MS = 1_000


class Broker:
    """One broker of one process. `parts` are there while it runs."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        remoting_limits: RemotingLimits | None = None,
    ) -> None:
        self.config = config
        self._clock: Clock = clock or SystemClock()
        self._limits = remoting_limits or RemotingLimits()
        self._file_system: PosixFileSystem | None = None
        self._store: MessageStore | None = None
        self._server: RemotingServer | None = None
        self._upkeep: BrokerUpkeep | None = None
        self._parts: BrokerParts | None = None
        self._security: BrokerSecurity | None = None
        self._observability: Observability | None = None
        self._role: ReplicationRole | None = None
        self._ha_socket: socket.socket | None = None
        self._changes = RoleChanges(self._start_as_configured)
        # Epoch of the master that this one has made room for.
        self._stepped_down = 0

    @property
    def parts(self) -> BrokerParts:
        """The tables and services, while the broker runs."""
        assert self._parts is not None, "the broker is not running"
        return self._parts

    @property
    def _replication_tls(self) -> ReplicationTls:
        assert self._security is not None
        return self._security.replication_tls

    @property
    def address(self) -> str:
        """`host:port` that clients are told."""
        return self.config.address

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.config.listen_port

    async def start(self) -> int:
        """Recover the store, listen, register; the port that was bound.

        Raises `OSError` when the port is taken and the store's errors when it cannot be opened;
        nothing is left open then.
        """
        self._changes.open()
        return await self._start_as_configured(choose_role=True)

    async def _start_as_configured(self, *, choose_role: bool = False) -> int:
        self._security = BrokerSecurity(self.config, self._clock)
        self._observability = Observability(self.config, self._clock)
        any_port = self.config.listen_port == 0
        sockets = self._bind()
        try:
            if choose_role:
                await self._choose_role()
            self._bind_replication(any_port=any_port)
            await self._start(sockets)
        except BaseException:
            for bound in sockets:
                bound.close()
            await self._release()
            raise
        return self.port

    async def stop(self) -> None:
        """Unregister, answer what is in flight, save, close. Safe to call twice."""
        await self._changes.stop()
        await self._stop()

    async def promote(self, role: BrokerRole = BrokerRole.ASYNC_MASTER) -> int:
        """Turn this slave into the master of its name, at once; the number of its epoch.

        Clients are cut off for the moment that this takes. The old master, if it comes back, finds
        a newer one here and follows it. Raises `PromotionRefused`, with the slave left as it is,
        when it has never copied anything. When it cannot start as a master, that error is raised
        and it goes on as a slave; once its epoch has begun, the start is tried again instead.
        """
        await self._changes.now(lambda: self._promotion(role))
        return self.parts.replication.epoch

    # Changes of role

    def _promotion(self, role: BrokerRole) -> Change:
        """The change that makes this slave a master; raises before anything is stopped."""
        if self.config.is_master:
            raise InvalidArgument("the broker is a master already")
        if role is BrokerRole.SLAVE:
            raise InvalidArgument("a slave becomes ASYNC_MASTER or SYNC_MASTER")
        self.parts.replication.check_promotion()
        return self._become(self.config.with_role(role, 0))

    def _promote_soon(self, role: BrokerRole) -> None:
        if not self._changes.soon(lambda: self._promotion(role)):
            raise ServiceNotAvailable(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "the broker is about to stop or to start again; try again in a moment",
            )

    async def _choose_role(self) -> None:
        """Before anything is opened: a master whose place is taken comes back as a slave."""
        self._stepped_down = 0
        if self.config.is_master:
            newer = await place_taken(self.config)
            if newer is not None:
                self._stepped_down = newer.epoch
                self.config = self.config.with_role(BrokerRole.SLAVE, newer.free_id)

    async def _become(self, config: BrokerConfig) -> None:
        before = self.config, self._stepped_down
        await self._stop()
        self.config, self._stepped_down = config, 0
        try:
            await self._start_as_configured()
        except (RmqError, OSError):
            # With its epoch begun it is the master, whatever failed then: no other one would take
            # it as a slave again.
            if stored_history(config.store_root).role is not LastRole.MASTER:
                self.config, self._stepped_down = before
            raise

    async def _step_down(self, newer: NewerMaster) -> None:
        """A newer master is there: take no more puts, then follow it."""
        _log.error("%s is the master now (epoch %d): stepping down", newer.address, newer.epoch)
        self.parts.store.replication.set_running(Running.STEPPED_DOWN, True)
        await self._stop()
        self._stepped_down = newer.epoch
        self.config = self.config.with_role(BrokerRole.SLAVE, newer.free_id)
        await self._start_as_configured()

    async def _newer_master(self) -> Callable[[], Change] | None:
        parts = self.parts
        register = parts.registration.again
        newer = await find_newer_master(self.config, parts.replication.history, register)
        return None if newer is None else partial(self._step_down, newer)

    async def _same_id(self) -> Callable[[], Change] | None:
        return self._take_another_id if await id_is_taken(self.config) else None

    async def _take_another_id(self) -> None:
        """A slave that was away when this broker stepped down has the id that looked free then."""
        broker_id = await next_free_id(self.config)
        _log.warning("another slave has brokerId=%d: taking %d", self.config.broker_id, broker_id)
        await self._stop()
        self.config = self.config.with_role(BrokerRole.SLAVE, broker_id)
        await self._start_as_configured()

    async def _cut(self, error: LogsDiverged) -> None:
        """Save aside what the master does not have, then copy from where the logs agree."""
        numbering = self.parts.store.replication.next_offsets_at(error.agreed)
        await self._stop()
        path = cut_store(self.config, error, numbering)
        _log.error(
            "the log ended differently from the master's: bytes %d to %d are in %s now, no reader "
            "will see them",
            error.agreed,
            error.end,
            path,
        )
        await self._start_as_configured()

    async def _stop(self) -> None:
        parts = self._parts
        if parts is not None:
            await parts.registration.stop()
            parts.pending.release_all()
            parts.pops.pending.release_all()
        await self._release()

    # Inside

    def _bind(self) -> list[socket.socket]:
        """The port before the store: two brokers never work on one directory for a moment."""
        config = self.config
        main = bind_address(config.listen_host, config.listen_port)
        port = main.getsockname()[1]
        self.config = config.with_listen_port(port)
        sockets = [main]
        if config.vip_port_enable and port > VIP_PORT_DISTANCE:
            try:
                sockets.append(bind_address(config.listen_host, port - VIP_PORT_DISTANCE))
            except OSError as error:
                _log.warning("clients that use the VIP channel cannot connect: %s", error)
        return sockets

    def _bind_replication(self, *, any_port: bool) -> None:
        """The port for slaves, who are told by name servers: another one if nobody chose it."""
        config = self.config
        if not config.is_master or config.ha_listen_port < 0:
            return
        any_port = any_port or config.listen_port == 65_535
        port = config.ha_listen_port or (0 if any_port else config.listen_port + 1)
        try:
            self._ha_socket = bind_address(config.listen_host, port)
        except OSError as error:
            if config.ha_listen_port:
                raise
            _log.warning("slaves connect to another port than %d: %s", port, error)
            self._ha_socket = bind_address(config.listen_host, 0)
        bound = self._ha_socket.getsockname()[1]
        self.config = dataclasses.replace(config, ha_listen_port=bound)

    async def _start(self, sockets: list[socket.socket]) -> None:
        config = self.config
        self._file_system = PosixFileSystem(config.store_root)
        self._store = MessageStore.open(self._file_system, config.store, clock=self._clock)
        self._role = ReplicationRole(
            config,
            self._clock,
            self._file_system,
            self._store,
            stepped_down=self._stepped_down,
            diverged=lambda error: self._changes.soon(lambda: self._cut(error)),
            newer_seen=lambda epoch: self._changes.look(),
            id_taken=lambda: self._changes.soon(self._take_another_id),
            tls=self._replication_tls,
        )
        await self._store.start()
        parts = BrokerParts(
            config, self._clock, self._file_system, self._store, self._limits, self._role
        )
        self._parts = parts
        parts.promotion = self._promote_soon
        parts.newer_master = lambda epoch: self._changes.look()
        if config.is_master:
            if self._role.was_promoted:
                adopt_topics(parts.topics, self._store)
                parts.identity.promoted(self._role.epoch)
            parts.delayed.start()
            parts.timers.start()
            parts.transactions.start()
            parts.transaction_check.start(asyncio.get_running_loop())
        self._upkeep = BrokerUpkeep(parts)
        self._upkeep.start()
        security, observability = self._security, self._observability
        assert security is not None
        assert observability is not None
        self._server = self._make_server(parts, security, observability)
        security.start()
        await observability.start(parts, self._server.budget, lambda: security.refused_count)
        for bound in sockets:
            await self._server.serve(bound)
        ha_socket, self._ha_socket = self._ha_socket, None
        await self._role.start(ha_socket)
        if parts.slave_metadata is not None:
            parts.slave_metadata.start()
        await parts.registration.start()
        if config.is_master:
            self._changes.watch(config, self._newer_master)
        elif self._stepped_down:
            self._changes.watch(config, self._same_id)

    def _make_server(
        self, parts: BrokerParts, security: BrokerSecurity, observability: Observability
    ) -> RemotingServer:
        handler = observability.timed(security.guarded(parts.router, parts.access_resources))
        parts.transaction_check.may_publish = security.may_publish
        return RemotingServer(
            handler,
            self._limits,
            security.tls,
            self._clock,
            request_decoder(parts.suffix),
            observability.new_load,
            security.is_stranger,
            # Where each request is looked at on its own, none may be taken past that.
            parts.take_sends if handler is parts.router else None,
        )

    async def _release(self) -> None:
        parts, self._parts = self._parts, None
        if self._server is not None:
            await self._server.stop(GRACE_MS)
            self._server = None
        if self._ha_socket is not None:
            self._ha_socket.close()
            self._ha_socket = None
        if self._role is not None:
            # After the answers: those that are waiting for a slave may still get it.
            await self._role.stop()
            self._role = None
        if self._observability is not None:
            await self._observability.stop()
        if self._security is not None:
            await self._security.stop()
        if self._upkeep is not None:
            await self._upkeep.stop()
            self._upkeep = None
        if parts is not None:
            if parts.slave_metadata is not None:
                await parts.slave_metadata.stop()
            await parts.pops.stop()
            parts.transaction_check.stop()
            parts.transactions.stop()
            parts.timers.stop()
            parts.delayed.stop()
            parts.offsets.save()
            try:
                parts.sinks.save()
            except RmqError as error:
                # The log has it all; the next start reads more of it.
                _log.warning("sink batches were not saved: %s", error)
        if self._store is not None:
            store, self._store = self._store, None
            # Waits for the disk; by now nobody is served any more.
            store.close()
        if self._file_system is not None:
            self._file_system.close()
            self._file_system = None
        # Callbacks that the closing posted.
        await asyncio.sleep(0)
