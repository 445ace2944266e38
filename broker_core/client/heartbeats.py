"""Telling brokers who is here: every half minute, and at once when something changed.

A broker forgets a client with its connection, so a lost connection is a reason to tell again.
Producers are announced to masters, consumers to slaves as well.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from broker_core.client.client_config import ClientConfig
from broker_core.client.parties import Parties
from broker_core.client.route_cache import RouteCache
from broker_core.client.topic_queues import MASTER_ID
from broker_core.codec.heartbeat_data import encode_heartbeat
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import RmqError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.connection import Connection
from broker_core.runtime.cancelled import end_tasks

_log = logging.getLogger(__name__)

# After a broker did not answer, until the interval is over anyway.
_RETRY_S: Final = 1.0


class Heartbeats:
    """The heartbeat task of one client instance."""

    def __init__(
        self, remoting: RemotingClient, routes: RouteCache, parties: Parties, config: ClientConfig
    ) -> None:
        self._remoting = remoting
        self._routes = routes
        self._parties = parties
        self._config = config
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watched: dict[str, Connection] = {}
        # Version that a broker's heartbeat answer told; unknown brokers are absent.
        self.broker_versions: dict[str, int] = {}
        routes.on_change(lambda topic: self.send_soon())

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(self._run())

    async def stop(self, timeout_ms: float) -> None:
        """End, and take leave of every broker that is connected."""
        if self._task is None:
            return
        await end_tasks((self._task,))
        self._task = None
        groups = [(g, "") for g in self._parties.producers]
        groups += [("", g) for g in self._parties.consumers]
        farewells = (
            self.unregister(producer, consumer, timeout_ms) for producer, consumer in groups
        )
        await asyncio.gather(*farewells)

    def send_soon(self) -> None:
        """Do not wait for the end of the interval."""
        self._wake.set()

    async def send(self) -> int:
        """Tell every broker in the routes; the number of those that answered well."""
        if not self._parties:
            return 0
        body = encode_heartbeat(self._parties.heartbeat(self._config.client_id))
        told = await asyncio.gather(*(self._tell(a, body) for a in self._addresses()))
        return sum(told)

    async def unregister(
        self, producer_group: str = "", consumer_group: str = "", timeout_ms: float = 1_000
    ) -> None:
        """Tell connected brokers that a group is gone from here."""
        ext = {"clientID": self._config.client_id}
        if producer_group:
            ext["producerGroup"] = producer_group
        if consumer_group:
            ext["consumerGroup"] = consumer_group
        connected = [a for a in self._addresses() if self._remoting.connection_to(a) is not None]
        await asyncio.gather(*(self._take_leave(a, dict(ext), timeout_ms) for a in connected))

    async def _run(self) -> None:
        pause_s = 0.0
        while True:
            if pause_s:
                await self._pause(pause_s)
            self._wake.clear()
            told = await self.send()
            is_complete = told == len(self._addresses()) or not self._parties
            interval_s = self._config.heartbeat_interval_ms / 1000
            pause_s = interval_s if is_complete else min(interval_s, _RETRY_S)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except asyncio.TimeoutError:
            return

    def _addresses(self) -> list[str]:
        with_slaves = bool(self._parties.consumers)
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
            _log.info("%s did not take the heartbeat: %s", address, error)
            return False
        self._watch(address)
        if answer.code != ResponseCode.SUCCESS:
            text = "%s refuses the heartbeat with code %d: %s"
            _log.warning(text, address, answer.code, answer.remark)
            return False
        self.broker_versions[address] = answer.version
        return True

    async def _take_leave(self, address: str, ext: dict[str, str], timeout_ms: float) -> None:
        command = RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext)
        try:
            await self._remoting.request(address, command, timeout_ms)
        except RmqError as error:
            _log.info("%s did not hear the farewell: %s", address, error)

    def _watch(self, address: str) -> None:
        """Be told when this connection ends, once for each connection."""
        connection = self._remoting.connection_to(address)
        if connection is not None and self._watched.get(address) is not connection:
            self._watched[address] = connection
            connection.on_close(lambda closed: self._lost(address, closed))

    def _lost(self, address: str, connection: Connection) -> None:
        if self._watched.get(address) is connection:
            del self._watched[address]
            self.send_soon()
