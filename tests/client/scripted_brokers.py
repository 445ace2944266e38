"""Brokers that keep messages in memory and answer as a test sets, over real sockets.

They register with a real name server of ours. `script` holds what happens to the next sends: a
response code, `SILENCE`, `HANG_UP`, or a function that makes the answer.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from broker_core.client.connection.config import ClientConfig
from broker_core.codec.records.message_properties import decode_properties
from broker_core.codec.wire.bodies.heartbeat_data import HeartbeatData, parse_heartbeat
from broker_core.codec.wire.bodies.topic_config import DataVersion, TopicConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.nameserver.broker_identity import BrokerIdentity
from broker_core.nameserver.broker_registration import BrokerRegistration
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.server import RemotingServer

SILENCE: Final = "silence"
HANG_UP: Final = "hang up"
SENDS: Final = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
CLUSTER: Final = "DefaultCluster"

Step = int | str | Callable[[RemotingCommand], RemotingCommand]
Answer = RemotingCommand | None | Awaitable[RemotingCommand | None]


class ScriptedBroker:
    """One broker."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.sends: list[RemotingCommand] = []
        self.script: deque[Step] = deque()
        self.always: Step | None = None
        self.heartbeats: list[HeartbeatData] = []
        self.farewells: list[dict[str, str]] = []
        self.connections: set[Connection] = set()
        self.answers: dict[int, Callable[[RemotingCommand], Answer]] = {}
        self._offsets: dict[tuple[str, str], int] = {}
        self._server: RemotingServer | None = None

    async def start(self) -> None:
        """Listen, at the same port after a stop."""
        self._server = RemotingServer(self._handle)
        port = int(self.address.rpartition(":")[2] or 0)
        bound = await self._server.start("127.0.0.1", port)
        self.address = f"127.0.0.1:{bound}"

    async def stop(self) -> None:
        """Go away, with all connections."""
        if self._server is not None:
            await self._server.stop(50)
            self._server = None

    def properties(self, number: int = -1) -> dict[str, str]:
        """Of a send that arrived."""
        return decode_properties(self.sends[number].ext["i"].encode())

    def _handle(self, connection: Connection, command: RemotingCommand) -> Answer:
        self.connections.add(connection)
        if command.code in self.answers:
            return self.answers[command.code](command)
        if command.code == RequestCode.HEART_BEAT:
            self.heartbeats.append(parse_heartbeat(command.body))
            return command.reply()
        if command.code == RequestCode.UNREGISTER_CLIENT:
            self.farewells.append(command.ext)
            return command.reply()
        if command.code in SENDS:
            return self._take(connection, command)
        return command.reply(3, f"request type {command.code} not supported")

    def _take(self, connection: Connection, command: RemotingCommand) -> Answer:
        self.sends.append(command)
        step = self.script.popleft() if self.script else self.always
        if step == HANG_UP:
            connection.abort("as the script says")
            return None
        if step == SILENCE:
            return None
        if callable(step):
            return step(command)
        assert step is None or isinstance(step, int)
        if step in (None, 0, 10, 11, 12):
            return self._stored(command, step or 0)
        return command.reply(step, f"refused with {step}")

    def _stored(self, command: RemotingCommand, code: int) -> RemotingCommand:
        key = command.ext["b"], command.ext["e"]
        first = self._offsets.get(key, 0)
        count = 1
        if command.code == RequestCode.SEND_BATCH_MESSAGE:
            count = _count_items(command.body)
        self._offsets[key] = first + count
        ids = [f"7F00000100002A9F{first + n:016X}" for n in range(count)]
        ext = {
            "msgId": ",".join(ids),
            "queueId": command.ext["e"],
            "queueOffset": str(first),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        return command.reply(code, ext=ext)


class ScriptedCluster:
    """A name server and its brokers."""

    def __init__(self, server: NameServer, address: str, brokers: list[ScriptedBroker]) -> None:
        self.server = server
        self.name_server = address
        self.brokers = brokers

    @property
    def broker(self) -> ScriptedBroker:
        return self.brokers[0]

    def config(self, **options: Any) -> ClientConfig:
        """Of a client of this cluster."""
        return ClientConfig((self.name_server,), **options)

    def register(self, broker: ScriptedBroker, *topics: TopicConfig, version: int = 1) -> None:
        """As the broker itself would, with these topics besides its own."""
        own = TopicConfig(broker.name, 1, 1)
        who = BrokerIdentity(CLUSTER, broker.name, 0, broker.address)
        registration = BrokerRegistration(who, DataVersion(version), (own, *topics))
        self.server.table.register(registration, broker, self.server._now_ms())

    def unregister(self, broker: ScriptedBroker) -> None:
        self.server.table.connection_closed(broker)

    def sends(self) -> list[RemotingCommand]:
        """Of all brokers."""
        return [send for broker in self.brokers for send in broker.sends]


@contextlib.asynccontextmanager
async def scripted_cluster(
    *names: str, topics: tuple[TopicConfig, ...] = (TopicConfig("T", 4, 4),)
) -> AsyncIterator[ScriptedCluster]:
    """Brokers of these names, by default one, that have `topics`; stopped at the end."""
    server = NameServer()
    port = await server.start("127.0.0.1", 0)
    brokers = [ScriptedBroker(name) for name in names or ("broker-a",)]
    cluster = ScriptedCluster(server, f"127.0.0.1:{port}", brokers)
    try:
        for broker in brokers:
            await broker.start()
            cluster.register(broker, *topics)
        yield cluster
    finally:
        for broker in brokers:
            await broker.stop()
        await server.stop(50)


def _count_items(body: bytes | memoryview) -> int:
    count = position = 0
    while position < len(body):
        position += int.from_bytes(body[position : position + 4], "big")
        count += 1
    return count
