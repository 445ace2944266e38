"""Keeps this broker registered with every name server: at the start, on change, periodically.

Owns one connection and one task per name server. An unreachable server is retried without delaying
the others. A lost connection drops the registration, so a new one starts with the whole table.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from broker_core.broker.security.broker_security import inner_client
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.native import body_crc
from broker_core.codec.wire.bodies.route_data import TopicRoute, decode_topic_route
from broker_core.codec.wire.bodies.topic_config import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
    encode_register_body,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RemoteError, RmqError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.connection import Connection
from broker_core.runtime.cancelled import end_tasks

_log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS: Final = 3_000
# How long an administrator's request waits for the name servers.
ANNOUNCE_TIMEOUT_MS: Final = 2_000
_RETRY_S: Final = 1.0
_MASTER_WANTED_S: Final = 2.0


class NameServerRegistration:
    """`start` and `stop` it on the event loop that serves the broker."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        on_master: Callable[[str, str], object] = lambda address, ha_address: None,
    ) -> None:
        """`on_master` receives the addresses of a slave's master, first and when they change."""
        self._config = config
        self._topics = topics
        self._client = inner_client(config)
        self._servers = [_Server(self, address) for address in config.name_servers]
        topics.on_change(self._topics_changed)
        self.master_address = ""
        """Where the master of this slave serves clients, as last reported by a name server."""
        self.master_ha_address = ""
        """Where the master of this slave serves its log, as last reported by a name server."""
        self._on_master = on_master

    async def start(self) -> None:
        """Register everywhere; returns when every server has answered or was found unreachable."""
        for server in self._servers:
            server.start()
        await self.announced(REQUEST_TIMEOUT_MS)

    async def announced(self, timeout_ms: int = ANNOUNCE_TIMEOUT_MS) -> None:
        """Wait until every reachable name server knows the topics as they are now."""
        waiting = [asyncio.ensure_future(server.settled()) for server in self._servers]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=timeout_ms / 1000)
            for task in late:
                task.cancel()

    async def again(self) -> None:
        """Register everywhere at once: another broker has overwritten the registration."""
        for server in self._servers:
            server.register_again()
        await self.announced()

    async def route(self, topic: str) -> TopicRoute | None:
        """The route of a topic from the first name server that has it; None if none has."""
        for address in self._config.name_servers:
            command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            try:
                answer = await self._client.request(address, command, ANNOUNCE_TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS:
                    return decode_topic_route(answer.body)
            except RmqError as error:
                _log.info(
                    "name server %s did not return the route of %s: %s", address, topic, error
                )
        return None

    async def stop(self) -> None:
        """Unregister and close the connections."""
        for server in self._servers:
            await server.stop()
        await self._client.close()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Register at once if the registered permission has changed."""
        is_told_otherwise = config.broker_permission != self._config.broker_permission
        self._config = config
        if is_told_otherwise:
            self._topics.touch()
            for server in self._servers:
                server.register_again()

    # For `_Server`

    @property
    def client(self) -> RemotingClient:
        """The connections to all name servers."""
        return self._client

    @property
    def period_s(self) -> float:
        """Seconds between two periodic registrations."""
        period_s = self._config.register_period_ms / 1000
        # The answer names a slave's master: a slave without one asks more often.
        is_lost = self._config.broker_id != 0 and not self.master_address
        return min(period_s, _MASTER_WANTED_S) if is_lost else period_s

    def command(self, changed: Sequence[TopicConfig] | None) -> RemotingCommand:
        """A registration of the changed topics, or of all."""
        config = self._config
        topics: Iterable[TopicConfig] = self._topics.all() if changed is None else changed
        if config.broker_permission != PERM_READ | PERM_WRITE:
            # Clients then use another broker instead of being rejected here.
            mask = config.broker_permission | PERM_INHERIT
            topics = [topic._replace(perm=topic.perm & mask) for topic in topics]
        body = encode_register_body(self._topics.version, topics)
        fields = {
            **self._identity(),
            "haServerAddr": config.ha_address,
            "compressed": "false",
            "bodyCrc32": str(body_crc(body)),
        }
        return RemotingCommand(RequestCode.REGISTER_BROKER, fields, body)

    def farewell(self) -> RemotingCommand:
        """The request that unregisters."""
        return RemotingCommand(RequestCode.UNREGISTER_BROKER, self._identity())

    def answered(self, ext: Mapping[str, str]) -> None:
        """Read the answer to a registration, which names a slave's master."""
        if self._config.broker_id == 0:
            return
        # Without a registered master, keep the last one: it may come back.
        found = ext.get("masterAddr") or "", ext.get("haServerAddr") or ""
        if found[0] and found != (self.master_address, self.master_ha_address):
            self.master_address, self.master_ha_address = found
            self._on_master(*found)

    def _identity(self) -> dict[str, str]:
        config = self._config
        return {
            "brokerName": config.broker_name,
            "brokerAddr": config.address,
            "clusterName": config.cluster_name,
            "brokerId": str(config.broker_id),
        }

    def _topics_changed(self, changed: list[TopicConfig]) -> None:
        for server in self._servers:
            server.topics_changed(changed)


class _Server:
    """One name server and the changes that it does not have yet."""

    def __init__(self, owner: NameServerRegistration, address: str) -> None:
        self._owner = owner
        self._address = address
        # None: everything.
        self._untold: dict[str, TopicConfig] | None = None
        self._has_news = asyncio.Event()
        # Never set: waiting for it is the pause between two attempts, which ends by cancellation.
        self._ended = asyncio.Event()
        self._settled: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._is_reachable = True
        self._is_settled = True

    def start(self) -> None:
        self._wake()
        self._task = asyncio.ensure_future(self._run())

    def topics_changed(self, changed: list[TopicConfig]) -> None:
        if not changed:
            # A topic was deleted: only the whole table shows that.
            self._untold = None
        elif self._untold is not None:
            self._untold.update((topic.name, topic) for topic in changed)
        self._wake()

    def register_again(self) -> None:
        """Register the whole table."""
        self._untold = None
        self._wake()

    async def settled(self) -> None:
        """Wait until the server has every change or is found unreachable."""
        if self._task is None or self._is_settled or not self._is_reachable:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._settled.append(waiter)
        await waiter

    async def stop(self) -> None:
        if self._task is None:
            return
        await end_tasks((self._task,))
        self._settle()
        if self._connection is not None and not self._connection.is_closed:
            try:
                await self._connection.request(self._owner.farewell(), 500)
            except RmqError as error:
                _log.info("name server %s was not notified of the stop: %s", self._address, error)

    async def _run(self) -> None:
        while True:
            told = await self._tell()
            if told and not self._has_news.is_set():
                self._settle()
            elif not told:
                self._settle()
                await _elapsed(self._ended, _RETRY_S)
                continue
            if await _elapsed(self._has_news, self._owner.period_s):
                self._untold = None

    async def _tell(self) -> bool:
        """Register once; False when that failed."""
        self._has_news.clear()
        untold, self._untold = self._untold, {}
        try:
            connection = await self._connected()
            # 5.x rejects a table with one topic unless a larger one came before.
            changed = None if untold is None or not untold else list(untold.values())
            answer = await connection.request(self._owner.command(changed), REQUEST_TIMEOUT_MS)
            _check(answer)
            self._owner.answered(answer.ext)
        except RmqError as error:
            self._untold = None
            self._has_news.set()
            if self._is_reachable:
                _log.warning("not registered with name server %s: %s", self._address, error)
            self._is_reachable = False
            return False
        if not self._is_reachable:
            _log.info("registered again with name server %s", self._address)
        self._is_reachable = True
        return True

    async def _connected(self) -> Connection:
        connection = await self._owner.client.connect(self._address, REQUEST_TIMEOUT_MS)
        if connection is not self._connection:
            self._connection = connection
            connection.on_close(self._lost)
        return connection

    def _lost(self, connection: Connection) -> None:
        """Register again at once: the name server drops a broker with its connection."""
        if connection is self._connection and self._task is not None and not self._task.done():
            self._untold = None
            self._wake()

    def _wake(self) -> None:
        self._is_settled = False
        self._has_news.set()

    def _settle(self) -> None:
        self._is_settled = True
        waiters, self._settled = self._settled, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _check(answer: RemotingCommand) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteError.for_code(answer.code, answer.remark)


async def _elapsed(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event; True on a timeout."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except asyncio.TimeoutError:
        return True
    return False
