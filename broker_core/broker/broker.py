"""A broker: opens its store, serves its port, registers, and puts everything away again.

Composition root of the process. Runs on the event loop that `start` was called on.
"""

from __future__ import annotations

import asyncio
import logging
import socket

from broker_core.broker.broker_config import BrokerConfig
from broker_core.broker.broker_parts import BrokerParts
from broker_core.broker.broker_upkeep import BrokerUpkeep
from broker_core.codec.plain_send import request_decoder
from broker_core.config import RemotingLimits
from broker_core.errors import InvalidConfig, RmqError
from broker_core.remoting.server import RemotingServer, bind_address
from broker_core.runtime.clock import Clock, SystemClock
from broker_core.storage.posix_file_system import PosixFileSystem
from broker_core.store.message_store import MessageStore

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

    @property
    def parts(self) -> BrokerParts:
        """The tables and services, while the broker runs."""
        assert self._parts is not None, "the broker is not running"
        return self._parts

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
        sockets = self._bind()
        try:
            await self._start(sockets)
        except BaseException:
            for bound in sockets:
                bound.close()
            await self._release()
            raise
        return self.port

    async def stop(self) -> None:
        """Unregister, answer what is in flight, save, close. Safe to call twice."""
        parts = self._parts
        if parts is not None:
            await parts.registration.stop()
            parts.pending.release_all()
        await self._release()

    # Inside

    def _bind(self) -> list[socket.socket]:
        """The port before the store: two brokers never work on one directory for a moment."""
        config = self.config
        if not config.is_master:
            raise InvalidConfig("brokerRole", "SLAVE", "ASYNC_MASTER or SYNC_MASTER")
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

    async def _start(self, sockets: list[socket.socket]) -> None:
        config = self.config
        self._file_system = PosixFileSystem(config.store_root)
        self._store = MessageStore.open(self._file_system, config.store, clock=self._clock)
        await self._store.start()
        parts = BrokerParts(config, self._clock, self._file_system, self._store, self._limits)
        self._parts = parts
        if config.is_master:
            parts.delayed.start()
            parts.transactions.start()
            parts.transaction_check.start(asyncio.get_running_loop())
        self._upkeep = BrokerUpkeep(parts)
        self._upkeep.start()
        self._server = RemotingServer(
            parts.router, self._limits, clock=self._clock, decoder=request_decoder(parts.suffix)
        )
        for bound in sockets:
            await self._server.serve(bound)
        await parts.registration.start()

    async def _release(self) -> None:
        parts, self._parts = self._parts, None
        if self._server is not None:
            await self._server.stop(GRACE_MS)
            self._server = None
        if self._upkeep is not None:
            await self._upkeep.stop()
            self._upkeep = None
        if parts is not None:
            parts.transaction_check.stop()
            parts.transactions.stop()
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
