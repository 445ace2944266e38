"""Heartbeats: announce the groups of a client every 30 seconds and at once after a change.

A broker forgets a client when its connection closes, so a lost connection also triggers one.
Producers are announced to masters, consumers also to slaves.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.group_registry import GroupRegistry
from broker_core.client.connection.routes import RouteCache
from broker_core.codec.wire.bodies.heartbeat_data import encode_heartbeat
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RmqError
from broker_core.protocol_codes import MASTER_ID, RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.connection import Connection
from broker_core.runtime.cancelled import end_tasks

_log = logging.getLogger(__name__)

# Retry interval after a broker did not answer.
_RETRY_S: Final = 1.0


class Heartbeats:
    """The heartbeat task of one client instance."""

    def __init__(
        self,
        remoting: RemotingClient,
        routes: RouteCache,
        registry: GroupRegistry,
        config: ClientConfig,
    ) -> None:
        self._remoting = remoting
        self._routes = routes
        self._registry = registry
        self._config = config
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watched: dict[str, Connection] = {}
        # Version in the heartbeat answer of each broker; unknown brokers are absent.
        self.broker_versions: dict[str, int] = {}
        routes.on_change(lambda topic: self.send_soon())

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self, timeout_ms: float) -> None:
        """End the task and unregister at every connected broker."""
        if self._task is None:
            return
        await end_tasks((self._task,))
        self._task = None
        groups = [(g, "") for g in self._registry.producers]
        groups += [("", g) for g in self._registry.consumers]
        unregistrations = (
            self.unregister(producer, consumer, timeout_ms) for producer, consumer in groups
        )
        await asyncio.gather(*unregistrations)

    def send_soon(self) -> None:
        """Send without waiting for the end of the interval."""
        self._wake.set()

    async def send(self) -> int:
        """Send to every broker in the routes. Returns how many accepted."""
        if not self._registry:
            return 0
        body = encode_heartbeat(self._registry.heartbeat(self._config.client_id))
        told = await asyncio.gather(*(self._tell(a, body) for a in self._addresses()))
        return sum(told)

    async def unregister(
        self, producer_group: str = "", consumer_group: str = "", timeout_ms: float = 1_000
    ) -> None:
        """Unregister a group at the connected brokers."""
        ext = {"clientID": self._config.client_id}
        if producer_group:
            ext["producerGroup"] = producer_group
        if consumer_group:
            ext["consumerGroup"] = consumer_group
        connected = [a for a in self._addresses() if self._remoting.connection_to(a) is not None]
        await asyncio.gather(*(self._unregister_at(a, dict(ext), timeout_ms) for a in connected))

    async def _run(self) -> None:
        pause_s = 0.0
        while True:
            if pause_s:
                await self._pause(pause_s)
            self._wake.clear()
            told = await self.send()
            is_complete = told == len(self._addresses()) or not self._registry
            interval_s = self._config.heartbeat_interval_ms / 1000
            pause_s = interval_s if is_complete else min(interval_s, _RETRY_S)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except asyncio.TimeoutError:
            return

    def _addresses(self) -> list[str]:
        with_slaves = bool(self._registry.consumers)
        return [
            address
            for members in self._routes.brokers().values()
            for broker_id, address in members.items()
            if with_slaves or broker_id == MASTER_ID
        ]

    async def _tell(self, address: str, body: bytes) -> bool:
        command = RemotingCommand(RequestCode.HEART_BEAT, {}, body)
        try:
            answer = await self._remoting.request(address, command, self._config.request_timeout_ms)
        except RmqError as error:
            _log.info("%s did not accept the heartbeat: %s", address, error)
            return False
        self._watch(address)
        if answer.code != ResponseCode.SUCCESS:
            text = "%s refuses the heartbeat with code %d: %s"
            _log.warning(text, address, answer.code, answer.remark)
            return False
        self.broker_versions[address] = answer.version
        return True

    async def _unregister_at(self, address: str, ext: dict[str, str], timeout_ms: float) -> None:
        command = RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext)
        try:
            await self._remoting.request(address, command, timeout_ms)
        except RmqError as error:
            _log.info("%s did not answer UNREGISTER_CLIENT: %s", address, error)

    def _watch(self, address: str) -> None:
        """Watch for the end of this connection, once per connection."""
        connection = self._remoting.connection_to(address)
        if connection is not None and self._watched.get(address) is not connection:
            self._watched[address] = connection
            connection.on_close(lambda closed: self._lost(address, closed))

    def _lost(self, address: str, connection: Connection) -> None:
        if self._watched.get(address) is connection:
            del self._watched[address]
            self.send_soon()
