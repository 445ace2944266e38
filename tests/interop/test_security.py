"""Accounts and TLS with the real peers: Java clients at our servers, our client at Apache's broker.

The older release takes part in the complete run (RMQ_INTEROP_ALL) only, except where the file of
accounts is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.client.admin.admin import Admin
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.pull.consumer import PullConsumer
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import RemoteError, TlsFailed
from broker_core.nameserver.name_server import NameServer
from broker_core.remoting.tls.context import OptionNames, ServerTls, server_context
from tests.access.access_files import ADMIN, BROKER, write_access_file, write_secret_file
from tests.broker.running_broker import broker_config
from tests.interop.conftest import COMPLETE
from tests.interop.consumer_ground import patient_config
from tests.interop.java_broker import JavaBroker
from tests.interop.java_client import compiled_class_path, java_tool
from tests.interop.maven_artifacts import PeerUnavailable
from tests.remoting.certificates import Authority, PemFiles

pytestmark = pytest.mark.interop

SOURCES = Path(__file__).parent / "java_secure"
VERSIONS = ("5.5.0", "4.9.7") if COMPLETE else ("5.5.0",)
RUN_TIMEOUT_S = 240
COUNT = 3
NAMES = OptionNames("certificate", "key", "authority")

USER: dict[str, Any] = {
    "accessKey": "java-user",
    "secretKey": "12345678-java",
    "topicPerms": ["T=PUB|SUB"],
    "groupPerms": ["G=SUB"],
}


def class_path(version: str) -> str:
    parts = ("rocketmq-broker", "rocketmq-namesrv", "rocketmq-tools")
    coordinates = [f"org.apache.rocketmq:{part}:{version}" for part in parts]
    try:
        return compiled_class_path(f"rocketmq-server-{version}", coordinates, SOURCES)
    except PeerUnavailable as error:
        pytest.skip(str(error))


async def java(
    version: str, main: str, *arguments: str, flags: Sequence[str] = (), home: str = ""
) -> list[str]:
    """What one Java program prints."""
    with tempfile.TemporaryDirectory(prefix="rmq-java-") as scratch:
        process = await asyncio.create_subprocess_exec(
            java_tool("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Duser.home={scratch}", f"-Djava.io.tmpdir={scratch}",
            f"-Drocketmq.client.logRoot={scratch}",
            f"-Drocketmq.log.root={scratch}", *flags, "-cp", class_path(version), main, *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "ROCKETMQ_HOME": home or scratch},
        )  # fmt: skip
        try:
            output, errors = await asyncio.wait_for(process.communicate(), RUN_TIMEOUT_S)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()
            raise
        return (output + errors).decode(errors="replace").splitlines()


@contextlib.asynccontextmanager
async def our_cluster(
    tmp_path: Path, tls: PemFiles | None = None, **properties: str
) -> AsyncIterator[tuple[str, Broker]]:
    """A name server and a broker with accounts, and with TLS if there are files for it."""
    file = write_access_file(tmp_path / "access.json", USER, BROKER, ADMIN)
    given = {
        "aclEnable": "true",
        "accessFile": str(file),
        "innerAccessKey": BROKER["accessKey"],
        "innerSecretKeyFile": str(write_secret_file(tmp_path / "inner", BROKER)),
    }
    server_tls = None
    if tls is not None:
        server_tls = ServerTls(server_context(*tls, NAMES))
        given |= {
            "tlsServerMode": "enforcing",
            "tls.server.certPath": tls.certificate,
            "tls.server.keyPath": tls.key,
            "tls.enable": "true",
        }
    server = NameServer(access_file=str(file), tls=server_tls)
    port = await server.start(port=0)
    address = f"127.0.0.1:{port}"
    given |= {"namesrvAddr": address, "mappedFileSizeCommitLog": str(8 << 20), **properties}
    config = broker_config(tmp_path / "store", **given)
    broker = Broker(config)
    await broker.start()
    try:
        yield address, broker
    finally:
        await broker.stop()
        await server.stop()


async def make_topic(config: ClientConfig) -> None:
    async with ClientInstance(config) as client:
        await Admin(client).create_topic("T", queue_count=1)


def client_config(name_server: str, account: dict[str, Any], **options: Any) -> ClientConfig:
    return ClientConfig(
        (name_server,), access_key=account["accessKey"], secret_key=account["secretKey"], **options
    )


def is_complete(lines: list[str]) -> bool:
    received = sorted(line for line in lines if line.startswith("received"))
    wanted = [f"received body {number} é" for number in range(COUNT)]
    return lines.count("sent SEND_OK") == COUNT and received == wanted and "complete" in lines


def is_refused(lines: list[str]) -> bool:
    # 5.x logs to the same place.
    words = [line.split(" ", 1)[0] for line in lines]
    return "failed" in words and "sent" not in words


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_client_with_its_hook_at_our_broker(version: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with our_cluster(tmp_path) as (name_server, _):
            await make_topic(client_config(name_server, ADMIN))
            ask = (name_server, "T", "G", str(COUNT))
            keys = (USER["accessKey"], USER["secretKey"])
            lines = await java(version, "SecureClient", *ask, *keys)
            assert is_complete(lines), lines
            wrongs = ((), (keys[0], "not the secret"), ("nobody", keys[1]))
            for wrong in wrongs if COMPLETE else wrongs[1:2]:
                refused = await java(version, "SecureClient", *ask, *wrong)
                assert is_refused(refused), refused

    asyncio.run(scenario())


@pytest.mark.parametrize("version", VERSIONS)
def test_mqadmin_with_its_hook_at_our_broker(version: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    # 4.9 insists on it.
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
    tool = "org.apache.rocketmq.tools.command.MQAdminStartup"

    def sign_as(account: dict[str, Any]) -> None:
        lines = f"accessKey: {account['accessKey']}\nsecretKey: {account['secretKey']}\n"
        (home / "conf" / "tools.yml").write_text(lines)

    async def scenario() -> None:
        async with our_cluster(tmp_path) as (name_server, broker):
            for account, allowed in ((USER, False), (ADMIN, True)):
                sign_as(account)
                lines = await java(
                    version, tool, "updateTopic", "-n", name_server, "-b", broker.address,
                    "-t", "FromMqadmin", "-r", "2", "-w", "2", home=str(home),
                )  # fmt: skip
                assert (broker.context.topics.find("FromMqadmin") is not None) is allowed, lines

    asyncio.run(scenario())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_client_with_tls_at_our_broker(version: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server")
    verified = (
        "-Dtls.enable=true",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={authority.path}",
        "-Dtls.test.mode.enable=false",
    )

    async def scenario() -> None:
        trust = {"tls.client.trustCertPath": authority.path}
        async with our_cluster(tmp_path, files, **trust) as (name_server, broker):
            tls = {"tls_enable": True, "tls_ca": authority.path}
            await make_topic(client_config(name_server, ADMIN, **tls))
            ask = (name_server, "T", "G", str(COUNT), USER["accessKey"], USER["secretKey"])
            lines = await java(version, "SecureClient", *ask, flags=verified)
            assert is_complete(lines), lines
            assert broker.context.store.offsets("T", 0)[1] == COUNT
            plain = await java(version, "SecureClient", *ask)
            assert is_refused(plain), plain

    asyncio.run(scenario())


# Our client at Apache's broker

PLAIN_ACL = """\
globalWhiteRemoteAddresses:
accounts:
- accessKey: python-user
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - T=PUB|SUB
  groupPerms:
  - G=SUB
- accessKey: python-admin
  secretKey: 12345678
  whiteRemoteAddress:
  admin: true
"""
OF_AUTH = "org.apache.rocketmq.auth.authentication.provider"
APACHE = {
    "4.9.7": {"aclEnable": "true"},
    "5.5.0": {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{OF_AUTH}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{OF_AUTH}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": '{"username":"python-admin","password":"12345678"}',
        "innerClientAuthenticationCredentials": (
            '{"accessKey":"python-admin","secretKey":"12345678"}'
        ),
    },
}


@pytest.mark.parametrize("version", ["4.9.7", *(("5.5.0",) if COMPLETE else ())])
def test_our_client_at_apaches_broker(version: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        server = NameServer()
        port = await server.start(port=0)
        name_server = f"127.0.0.1:{port}"
        home = tmp_path / "home"
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
        broker = JavaBroker(version, home, name_server, APACHE[version])
        await broker.start()
        try:
            await broker.until(lambda: server.table.route("TBW102") is not None)
            await _use_apache(name_server, is_plain_acl=version == "4.9.7")
        finally:
            await broker.kill()
            await server.stop()

    asyncio.run(scenario())


async def _use_apache(name_server: str, *, is_plain_acl: bool) -> None:
    admin = patient_config(name_server, access_key="python-admin", secret_key="12345678")
    await make_topic(admin)
    user = "python-user" if is_plain_acl else "python-admin"
    config = patient_config(name_server, access_key=user, secret_key="12345678")
    async with ClientInstance(config) as client:
        producer = Producer(client, "PG")
        await producer.start()
        for body in (b"one", "zwei é".encode(), b"x" * 100_000):
            await producer.send(OutgoingMessage("T", body, tags="A", keys="k1"))
        await producer.stop()
        consumer, queue = PullConsumer(client, "G"), MessageQueue("T", "broker-a", 0)
        # Apache puts messages into their queue after the answer.
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pulled = await consumer.pull(queue, 0)
        for _ in range(600):
            if len(pulled.messages) == 3:
                break
            await asyncio.wait((never,), timeout=0.1)
            pulled = await consumer.pull(queue, 0)
        assert [len(message.body) for message in pulled.messages] == [3, 7, 100_000]
        if is_plain_acl:
            other = PullConsumer(client, "H")
            with pytest.raises(RemoteError, match="H"):
                await other.pull(queue, 0)
    for key, secret in (("python-user", "wrong-secret"), ("nobody", "12345678")):
        wrong = patient_config(name_server, access_key=key, secret_key=secret)
        async with ClientInstance(wrong) as client, Producer(client, "PG") as producer:
            with pytest.raises(RemoteError):
                await producer.send(OutgoingMessage("T", b"refused"))


@pytest.mark.skipif(not COMPLETE, reason="in the complete run: RMQ_INTEROP_ALL=1")
@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_our_client_with_tls_at_apaches_broker(version: str, tmp_path: Path) -> None:
    """Its broker has a certificate of its own making in test mode, which we refuse."""

    async def scenario() -> None:
        server = NameServer()
        port = await server.start(port=0)
        name_server = f"127.0.0.1:{port}"
        broker = JavaBroker(version, tmp_path / "home", name_server, with_tls=True)
        await broker.start()
        try:
            await broker.until(lambda: server.table.route("TBW102") is not None)
            config = ClientConfig((broker.address,), tls_enable=True, tls_verify=False)
            async with ClientInstance(config) as client:
                connection = await client.remoting.connect(broker.address, 60_000)
                assert connection.is_encrypted
            config = ClientConfig((broker.address,), tls_enable=True)
            async with ClientInstance(config) as client:
                with pytest.raises(TlsFailed, match="certificate"):
                    await client.remoting.connect(broker.address, 60_000)
        finally:
            await broker.kill()
            await server.stop()

    asyncio.run(scenario())
