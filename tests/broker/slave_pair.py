"""A master and its slave on real sockets and disks in one event loop, with a name server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from broker_core.broker.broker import Broker
from broker_core.nameserver.name_server import NameServer
from broker_core.remoting.client import RemotingClient
from tests.broker.running_broker import Asker, broker_config
from tests.patient_client import patient_client
from tests.remoting.peers import until


class SlavePair:
    """`master` and `slave` may be stopped and started again on their stores."""

    def __init__(self, root: Path, server: NameServer, port: int, client: RemotingClient) -> None:
        self._root = root
        self.server = server
        self.name_server = f"127.0.0.1:{port}"
        self.client = client
        self._properties: dict[str, str] = {}
        self._ports: dict[str, tuple[int, int]] = {}
        self.master: Asker
        self.slave: Asker

    async def start(self, properties: dict[str, str]) -> None:
        self._properties = properties
        await self.start_master()
        await self.start_slave()

    async def start_master(self, role: str = "ASYNC_MASTER") -> None:
        self.master = await self._start("master", brokerRole=self._properties.get("role", role))

    async def start_slave(self) -> None:
        self.slave = await self._start("slave", brokerRole="SLAVE", brokerId="1")

    async def stop(self) -> None:
        await self.slave.broker.stop()
        await self.master.broker.stop()

    async def copied(self) -> None:
        """The slave has what the master has, tables included."""

        def is_copied() -> bool:
            ours, theirs = self.slave.broker.context, self.master.broker.context
            metadata = self.slave.broker.features.replication.slave_metadata
            return (
                ours.store.dispatched_position == theirs.store.log_range[1]
                and metadata is not None
                and metadata.master_is_there
                and ours.topics.version == theirs.topics.version
                and ours.groups.version == theirs.groups.version
            )

        await until(is_copied)

    async def _start(self, name: str, **properties: str) -> Asker:
        given = {key: text for key, text in self._properties.items() if key != "role"}
        port, ha_port = self._ports.get(name, (0, 0))
        config = broker_config(
            self._root / name,
            **{
                "namesrvAddr": self.name_server,
                "registerNameServerPeriod": "1000",
                "vipPortEnable": "false",
                "listenPort": str(port),
                "haListenPort": str(ha_port),
                **given,
                **properties,
            },
        )
        broker = Broker(config)
        await broker.start()
        self._ports[name] = (broker.config.listen_port, broker.config.ha_listen_port)
        return Asker(broker, self.client)


@contextlib.asynccontextmanager
async def slave_pair(root: Path, **properties: str) -> AsyncIterator[SlavePair]:
    """Both are started; the slave has a copy of everything."""
    server, client = NameServer(), patient_client()
    port = await server.start("127.0.0.1", 0)
    pair = SlavePair(root, server, port, client)
    try:
        await pair.start(properties)
        await pair.copied()
        yield pair
    finally:
        await client.close()
        with contextlib.suppress(AttributeError):
            await pair.stop()
        await server.stop(100)
        await asyncio.sleep(0)
