"""A name server and a broker with accounts, in this process, and clients of each of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from broker_core.broker.broker import Broker
from broker_core.client.admin.admin import Admin
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.config import RemotingLimits
from broker_core.nameserver.name_server import NameServer
from tests.access.access_files import (
    ACCOUNTS,
    ADMIN,
    BROKER,
    signer,
    write_access_file,
    write_secret_file,
)
from tests.broker.running_broker import TIMEOUT_MS, broker_config
from tests.patient_client import patient_client


class Cluster:
    """A name server and a broker that both have accounts."""

    def __init__(self, name_server: str, broker: Broker, file: Path) -> None:
        self.name_server = name_server
        self.broker = broker
        self.file = file

    def config(self, account: dict[str, Any] | None) -> ClientConfig:
        keys = {}
        if account is not None:
            keys = {"access_key": account["accessKey"], "secret_key": account["secretKey"]}
        return ClientConfig((self.name_server,), **keys)

    @contextlib.asynccontextmanager
    async def client(self, account: dict[str, Any] | None) -> AsyncIterator[ClientInstance]:
        async with ClientInstance(self.config(account)) as client:
            yield client

    async def ask(
        self, account: dict[str, Any] | None, code: int, body: bytes = b"", **ext: str
    ) -> RemotingCommand:
        client = patient_client(sign_request=signer(account) if account else None)
        try:
            command = RemotingCommand(code, ext, body)
            return await client.request(self.broker.address, command, TIMEOUT_MS)
        finally:
            await client.close()


@contextlib.asynccontextmanager
async def cluster(
    tmp_path: Path, *, limits: RemotingLimits | None = None, **properties: str
) -> AsyncIterator[Cluster]:
    file = write_access_file(tmp_path / "access.json", *ACCOUNTS)
    server = NameServer(access_file=str(file))
    port = await server.start(port=0)
    config = broker_config(
        tmp_path / "store",
        aclEnable="true",
        accessFile=str(file),
        namesrvAddr=f"127.0.0.1:{port}",
        innerAccessKey=BROKER["accessKey"],
        innerSecretKeyFile=str(write_secret_file(tmp_path / "inner", BROKER)),
        **properties,
    )
    broker = Broker(config, remoting_limits=limits)
    await broker.start()
    try:
        yield Cluster(f"127.0.0.1:{port}", broker, file)
    finally:
        await broker.stop()
        await server.stop()


async def make_topic(found: Cluster, name: str = "T") -> None:
    async with found.client(ADMIN) as client:
        await Admin(client).create_topic(name, queue_count=1)
