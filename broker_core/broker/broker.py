"""A broker: start, stop and changes of its role. Runs on the event loop that started it.

Start:    port, role, replication port, store, tables, features, recovery, metrics, serving,
          replication, background work, registration
Stop:     registration, held requests, server, replication, metrics, features in reverse, store
Change:   stop, then start with another role or a shorter log
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from broker_core.access.accounts import Account
from broker_core.broker.admin.feature import AdminFeature
from broker_core.broker.clients.feature import ClientsFeature
from broker_core.broker.context import BrokerContext, open_context
from broker_core.broker.feature import Feature
from broker_core.broker.metrics.broker_metrics import MetricSources
from broker_core.broker.metrics.observability import Observability
from broker_core.broker.pop.feature import PopFeature
from broker_core.broker.pull.feature import PullFeature
from broker_core.broker.replication.changes import Change, RoleChanges, cut_store
from broker_core.broker.replication.feature import ReplicationFeature
from broker_core.broker.replication.master_discovery import (
    NewerMaster,
    Rival,
    expected_epoch,
    find_newer_master,
    id_is_taken,
    next_free_id,
    place_taken,
)
from broker_core.broker.replication.persisted_roles import stored_history
from broker_core.broker.replication.registration import NameServerRegistration
from broker_core.broker.replication.role import ReplicationRole
from broker_core.broker.replication.slave_refusals import refused_on_a_slave
from broker_core.broker.request_router import RequestRouter
from broker_core.broker.scheduled.feature import ScheduledFeature
from broker_core.broker.security.broker_security import BrokerSecurity
from broker_core.broker.security.resources import BrokerResources
from broker_core.broker.send.feature import SendFeature
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.sink.feature import SinkFeature
from broker_core.broker.tables.topic_table import adopt_topics
from broker_core.broker.transactions.feature import TransactionsFeature
from broker_core.broker.upkeep import BrokerUpkeep
from broker_core.codec.wire.plain_send import request_decoder
from broker_core.config import RemotingLimits
from broker_core.errors import InvalidArgument, LogsDiverged, RmqError, ServiceNotAvailable
from broker_core.protocol_codes import BrokerRole, ResponseCode
from broker_core.remoting.server import RemotingServer, bind_address
from broker_core.replication.log_epochs import LastRole
from broker_core.runtime.clock import Clock, SystemClock
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.message_store import MessageStore
from broker_core.store.running_flags import Running

_log = logging.getLogger(__name__)

_Part = TypeVar("_Part")

# Old clients send on a port this far below the ordinary one.
VIP_PORT_DISTANCE = 2
_NO_VIP_PORT = "clients that use the VIP channel cannot connect: %s"
# A clean stop takes less than two seconds in all.
GRACE_MS = 1_000


class Features:
    """The features of one broker, in the order in which they are built, recovered and started.

    Each comes after those that it uses and stops before them: `stop` is in reverse order.
    """

    def __init__(
        self,
        context: BrokerContext,
        role: ReplicationRole,
        registration: NameServerRegistration,
        *,
        may_publish: Callable[[Account | None, str], bool],
        promote: Callable[[BrokerRole], object],
        newer_master: Callable[[int], object],
    ) -> None:
        # First, hence stopped last: saves the offsets that the others commit while they stop.
        self.clients = ClientsFeature(context)
        self.scheduled = ScheduledFeature(context)
        self.transactions = TransactionsFeature(context, may_publish=may_publish)
        self.send = SendFeature(
            context,
            routes_announced=registration.announced,
            recall=self.scheduled.timers.recall,
        )
        self.sink = SinkFeature(context, check_queue=self.send.planner.check_queue)
        self.replication = ReplicationFeature(
            context,
            role=role,
            registration=registration,
            scheduled=self.scheduled,
            transactions=self.transactions,
            sinks=self.sink.batches,
            promote=promote,
            newer_master=newer_master,
        )
        self.pull = PullFeature(context, master_is_there=self.replication.master_is_there)
        self.pop = PopFeature(context, pulls=self.pull.pulls, route=registration.route)
        self.admin = AdminFeature(
            context,
            routes_announced=registration.announced,
            popped_until=self.pop.ledgers.next_of,
            delay_offsets=lambda: self.scheduled.delayed.offsets,
        )
        # Last, hence stopped first: its writes are over when the others save.
        self.upkeep = BrokerUpkeep(
            context, sinks=self.sink.batches, drop_idle_pops=self.pop.ledgers.drop_idle
        )
        self.ordered: tuple[Feature, ...] = (
            self.clients,
            self.scheduled,
            self.transactions,
            self.send,
            self.sink,
            self.replication,
            self.pull,
            self.pop,
            self.admin,
            self.upkeep,
        )


class Broker:
    """One broker of one process. `context`, `features`, `role`, `registration` and `router` are
    there while it runs, and new after each change of its role.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        remoting_limits: RemotingLimits | None = None,
        peer_clock: Clock | None = None,
        open_files: Callable[[str], PosixFileSystem] = PosixFileSystem,
    ) -> None:
        """`peer_clock` is for connections and heartbeats; without it they use `clock`."""
        self.config = config
        self._clock: Clock = clock or SystemClock()
        self._peer_clock = peer_clock or self._clock
        self._open_files = open_files
        self._limits = remoting_limits or RemotingLimits()
        self._security: BrokerSecurity | None = None
        self._observability: Observability | None = None
        self._ha_socket: socket.socket | None = None
        self._file_system: PosixFileSystem | None = None
        self._store: MessageStore | None = None
        self._role: ReplicationRole | None = None
        self._context: BrokerContext | None = None
        self._registration: NameServerRegistration | None = None
        self._features: Features | None = None
        self._router: RequestRouter | None = None
        self._server: RemotingServer | None = None
        self._changes = RoleChanges(self._start_as_configured)
        # Epoch of the master for which this one has stepped down.
        self._stepped_down = 0
        # Another master has the same term: the next start begins a new one.
        self._outranks = False

    @property
    def context(self) -> BrokerContext:
        """Store, tables and statistics."""
        return _running(self._context)

    @property
    def features(self) -> Features:
        """The features by name."""
        return _running(self._features)

    @property
    def role(self) -> ReplicationRole:
        """Replication of the log, as a master or a slave."""
        return _running(self._role)

    @property
    def registration(self) -> NameServerRegistration:
        """Its registration with the name servers."""
        return _running(self._registration)

    @property
    def router(self) -> RequestRouter:
        """The handlers of all request codes."""
        return _running(self._router)

    @property
    def server(self) -> RemotingServer:
        """Its connections with clients."""
        return _running(self._server)

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return self.config.address

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self.config.listen_port

    async def start(self) -> int:
        """Recover the store, listen and register. Returns the bound port.

        Raises `OSError` when the port is taken, and the store's errors when it cannot be opened.
        Nothing is left open then.
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
            await self._start(sockets, await self._expected_epoch())
        except BaseException:
            for bound in sockets:
                bound.close()
            await self._release()
            raise
        return self.port

    async def stop(self) -> None:
        """Unregister, answer requests in flight, save, close. Safe to call twice."""
        await self._changes.stop()
        await self._stop()

    async def promote(self, role: BrokerRole = BrokerRole.ASYNC_MASTER) -> int:
        """Turn this slave into the master of its name. Returns the number of its epoch.

        Clients are disconnected meanwhile. The old master, if it comes back, finds a newer one and
        follows it. Raises `PromotionRefused`, with the slave unchanged, when it has never copied
        anything. If the start as a master fails, that error is raised and the broker continues as
        a slave; once the new epoch has begun, the start is retried instead.
        """
        await self._changes.now(lambda: self._promotion(role))
        return self.role.epoch

    def promote_soon(self, role: BrokerRole) -> None:
        """Begin `promote` in a task of its own, for a request that must be answered first.

        Raises `PromotionRefused`, and `ServiceNotAvailable` while another change is under way.
        """
        if not self._changes.soon(lambda: self._promotion(role)):
            raise ServiceNotAvailable(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "the broker is stopping or restarting; try again in a moment",
            )

    # Changes of role

    def _promotion(self, role: BrokerRole) -> Change:
        """The change that makes this slave a master; raises before anything is stopped."""
        if self.config.is_master:
            raise InvalidArgument("the broker is a master already")
        if role is BrokerRole.SLAVE:
            raise InvalidArgument("a slave becomes ASYNC_MASTER or SYNC_MASTER")
        self.role.check_promotion()
        return self._become(self.config.with_role(role, 0))

    async def _choose_role(self) -> None:
        """Called before anything is opened: a master that was replaced starts as a slave."""
        self._stepped_down = 0
        if self.config.is_master:
            newer = await place_taken(self.config)
            if newer is not None:
                self._stepped_down = newer.epoch
                self.config = self.config.with_role(BrokerRole.SLAVE, newer.free_id)

    async def _expected_epoch(self) -> int:
        """Announce the epoch of this start if it is a promotion; its number, 0 otherwise."""
        if not self.config.is_master:
            return 0
        history = stored_history(self.config.store_root)
        is_promotion = history.role not in (LastRole.MASTER, LastRole.NONE)
        if not history.epochs or not (is_promotion or self._outranks):
            return 0
        return await expected_epoch(self.config, history)

    async def _become(self, config: BrokerConfig) -> None:
        before = self.config, self._stepped_down
        await self._stop()
        self.config, self._stepped_down = config, 0
        try:
            await self._start_as_configured()
        except (RmqError, OSError):
            # Once its epoch has begun it is the master: no other one would accept it as a slave.
            if stored_history(config.store_root).role is not LastRole.MASTER:
                self.config, self._stepped_down = before
            raise

    async def _step_down(self, newer: NewerMaster) -> None:
        """Follow a newer master; accept no more messages before the stop."""
        _log.error("%s is the master now (epoch %d): stepping down", newer.address, newer.epoch)
        self.context.store.replication.set_running(Running.STEPPED_DOWN, True)
        await self._stop()
        self._stepped_down = newer.epoch
        self.config = self.config.with_role(BrokerRole.SLAVE, newer.free_id)
        await self._start_as_configured()

    async def _outrank(self, rival: Rival) -> None:
        """Become newer than another master of the same term, which then steps down."""
        _log.error(
            "%s is also a master of this name, and neither was promoted after the other: this "
            "broker begins a new epoch, and the other one follows it",
            rival.address,
        )
        await self._stop()
        self._outranks = True
        await self._start_as_configured()

    async def _newer_master(self) -> Callable[[], Change] | None:
        register, store_id = self.registration.again, self.context.identity.store_id
        newer = await find_newer_master(self.config, self.role.history, register, store_id)
        if isinstance(newer, Rival):
            return partial(self._outrank, newer)
        return None if newer is None else partial(self._step_down, newer)

    async def _same_id(self) -> Callable[[], Change] | None:
        return self._take_another_id if await id_is_taken(self.config) else None

    async def _take_another_id(self) -> None:
        """Change an id that looked free only because its slave was away."""
        broker_id = await next_free_id(self.config)
        _log.warning("another slave has brokerId=%d: taking %d", self.config.broker_id, broker_id)
        await self._stop()
        self.config = self.config.with_role(BrokerRole.SLAVE, broker_id)
        await self._start_as_configured()

    async def _cut(self, error: LogsDiverged) -> None:
        """Save the end of the log that the master lacks, then copy from where the logs agree."""
        replication = self.context.store.replication
        numbering = replication.next_offsets_at(error.agreed)
        count = replication.message_count_from(error.agreed)
        await self._stop()
        path = cut_store(self.config, error, numbering)
        _log.error(
            "the log diverged from the master's: %d messages, bytes %d to %d, were moved to %s and "
            "are no longer readable",
            count,
            error.agreed,
            error.end,
            path,
        )
        await self._start_as_configured()

    async def _stop(self) -> None:
        if self._features is not None:
            await self.registration.stop()
            for feature in reversed(self._features.ordered):
                feature.release()
        await self._release()

    def _bind(self) -> list[socket.socket]:
        """Bind before the store opens: two brokers must not work on one directory."""
        config = self.config
        main = bind_address(config.listen_host, config.listen_port)
        port = main.getsockname()[1]
        self.config = config.with_listen_port(port)
        sockets = [main]
        if config.vip_port_enable and port > VIP_PORT_DISTANCE:
            vip_port = port - VIP_PORT_DISTANCE
            # Beside a port that the system chose, the VIP port may belong to another server.
            reuse = config.listen_port != 0
            try:
                sockets.append(bind_address(config.listen_host, vip_port, reuse=reuse))
            except OSError as error:
                _log.warning(_NO_VIP_PORT, error)
        return sockets

    def _bind_replication(self, *, any_port: bool) -> None:
        """Bind the port for slaves, who get it from the name servers: another free port will do."""
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

    async def _start(self, sockets: list[socket.socket], epoch: int) -> None:
        config = self.config
        self._file_system = self._open_files(config.store_root)
        self._store = MessageStore.open(self._file_system, config.store, clock=self._clock)
        # Before anything can be appended: a master's run begins a new epoch.
        role = self._role = self._make_role(self._file_system, self._store, epoch)
        self._outranks = False
        await self._store.start()
        context = self._context = open_context(
            config,
            self._clock,
            self._file_system,
            self._store,
            self._limits,
            history=lambda: role.history,
            peer_clock=self._peer_clock,
        )
        if role.was_promoted:
            adopt_topics(context.topics, self._store)
            context.identity.promoted(role.epoch)
        features = self._features = self._make_features(context, role)
        if config.is_master:
            for feature in features.ordered:
                feature.recover()
        await self._serve(context, features, sockets)
        ha_socket, self._ha_socket = self._ha_socket, None
        await role.start(ha_socket)
        for feature in features.ordered:
            await feature.start()
        # Last: from here on clients find this broker.
        await self.registration.start()
        if config.is_master:
            self._changes.watch(config, self._newer_master)
        elif self._stepped_down:
            self._changes.watch(config, self._same_id)

    def _make_role(
        self, file_system: PosixFileSystem, store: MessageStore, epoch: int
    ) -> ReplicationRole:
        return ReplicationRole(
            self.config,
            self._clock,
            file_system,
            store,
            stepped_down=self._stepped_down,
            expected_epoch=epoch,
            diverged=lambda error: self._changes.soon(lambda: self._cut(error)),
            newer_seen=lambda epoch: self._changes.look(),
            id_taken=lambda: self._changes.soon(self._take_another_id),
            tls=_running(self._security).replication_tls,
        )

    def _make_features(self, context: BrokerContext, role: ReplicationRole) -> Features:
        config, settings = context.config, context.settings
        registration = NameServerRegistration(config, context.topics, role.master_is)
        features = Features(
            context,
            role,
            registration,
            may_publish=_running(self._security).may_publish,
            promote=self.promote_soon,
            newer_master=lambda epoch: self._changes.look(),
        )
        held = features.pull.pending, features.pop.pending
        context.store.scheduler.delay_arrivals_unless(lambda: len(held[0]) + len(held[1]) > 0)
        self._registration = registration
        self._router = RequestRouter(
            [processor for feature in features.ordered for processor in feature.processors()],
            {} if config.is_master else refused_on_a_slave(),
        )
        settings.on_change(registration.reconfigure)
        for feature in features.ordered:
            settings.on_change(feature.settings_changed)
            settings.check_with(feature.settings_problem)
        # After every listener is known: stored changes apply to all of them.
        settings.resume()
        return features

    async def _serve(
        self, context: BrokerContext, features: Features, sockets: list[socket.socket]
    ) -> None:
        """Requests pass the measurement, then access control, then the router."""
        security, observability = _running(self._security), _running(self._observability)
        staging = features.sink.staging
        resources = BrokerResources(context, sink_of=staging.sink_of, topics_of=staging.topics_of)
        handler = observability.timed(security.guarded(self.router, resources))
        server = self._server = RemotingServer(
            handler,
            self._limits,
            security.tls,
            self._peer_clock,
            request_decoder(features.send.planner.suffix),
            observability.new_load,
            security.needs_account,
            # A burst bypasses the handler: not allowed where each request is measured or checked.
            features.send.take_burst if handler is self.router else None,
        )
        security.start()
        sources = MetricSources(
            pop=features.pop,
            scheduled=features.scheduled,
            transactions=features.transactions,
            sinks=features.sink.batches,
            replication_status=self.role.status,
        )
        await observability.start(context, sources, server.budget, lambda: security.refused_count)
        main, *vip = sockets
        await server.serve(main)
        for bound in vip:
            try:
                await server.serve(bound)
            except OSError as error:
                _log.warning(_NO_VIP_PORT, error)

    async def _release(self) -> None:
        """Close everything that is open; also after a start that failed half-way."""
        features, self._features = self._features, None
        self._context = self._registration = self._router = None
        if self._server is not None:
            await self._server.stop(GRACE_MS)
            self._server = None
        if self._ha_socket is not None:
            self._ha_socket.close()
            self._ha_socket = None
        if self._role is not None:
            # After the server, unlike at the start: answers that wait for a slave may still go out.
            await self._role.stop()
            self._role = None
        if self._observability is not None:
            await self._observability.stop()
        if self._security is not None:
            await self._security.stop()
        if features is not None:
            for feature in reversed(features.ordered):
                await feature.stop()
        if self._store is not None:
            store, self._store = self._store, None
            # Blocks until the disk has everything; no client is connected any more.
            store.close()
        if self._file_system is not None:
            self._file_system.close()
            self._file_system = None
        # Callbacks that the closing posted.
        await asyncio.sleep(0)


def _running(part: _Part | None) -> _Part:
    assert part is not None, "the broker is not running"
    return part
