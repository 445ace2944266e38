"""Small clusters for scenarios that our clients must pass against every broker.

    async with cluster("apache-5.5.0", tmp_path) as found:
        config = ClientConfig(found.name_server)

`KINDS` are the brokers to run a scenario against: ours, as the process that users start, and
Apache's. A name server of ours runs in the test's own event loop unless Apache's is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.client import RemotingClient
from tests.interop.java_broker import POLL_S, START_TIMEOUT_S, JavaBroker
from tests.interop.java_name_server import JavaNameServer
from tests.interop.loopback_ports import free_ports
from tests.interop.maven_artifacts import PeerUnavailable
from tests.patient_client import PATIENT_BROKER, patient_client

# Both releases: for what runs in `make test` only, such as the tests of the source and the sink.
EVERY_APACHE_KIND: Final = ("apache-4.9.7", "apache-5.5.0")
# `make test` has the newer release; `make test-interop` both.
_IS_COMPLETE: Final = bool(os.environ.get("RMQ_INTEROP_ALL"))
APACHE_KINDS: Final = EVERY_APACHE_KIND if _IS_COMPLETE else EVERY_APACHE_KIND[1:]
OURS: Final = "ours"
KINDS: Final = (OURS, *APACHE_KINDS)

# What a busy machine may take for an answer: how fast brokers are, the benchmarks measure.
REQUEST_TIMEOUT_MS: Final = 60_000
_ROOT: Final = Path(__file__).resolve().parents[2]


class RunningBroker(Protocol):
    """What a scenario may do with a broker."""

    name: str
    address: str

    async def start(self) -> None:
        """Begin to start; returns before it serves."""

    async def kill(self) -> None:
        """End it without warning."""


class ApacheBroker:
    """Apache's broker as a process; the same directory and ports after a restart."""

    def __init__(
        self, version: str, home: Path, name_server: str, name: str, properties: Mapping[str, str]
    ) -> None:
        self.name = name
        self._java = JavaBroker(version, home, name_server, {"brokerName": name, **properties})
        self.address = self._java.address

    async def start(self) -> None:
        await self._java.start()

    async def kill(self) -> None:
        await self._java.kill()

    async def mqadmin(self, *arguments: str) -> str:
        return await self._java.mqadmin(*arguments)

    def check_alive(self) -> None:
        process = self._java.process
        assert process is None or process.returncode is None, self._java._last_words()


class OurBroker:
    """`rmq broker` as a process; the same directory and ports after a restart."""

    def __init__(
        self, home: Path, name_server: str, name: str, properties: Mapping[str, str]
    ) -> None:
        self.name = name
        self._home = home
        port, ha_port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._process: asyncio.subprocess.Process | None = None
        self._properties = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": name,
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(port),
            "haListenPort": str(ha_port),
            "namesrvAddr": name_server,
            "storePathRootDir": str(home / "store"),
            "mappedFileSizeCommitLog": str(1 << 20),
            "mappedFileSizeConsumeQueue": str(20_000),
            "autoCreateTopicEnable": "true",
            "flushDiskType": "ASYNC_FLUSH",
            **PATIENT_BROKER,
            **properties,
        }

    async def start(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{key}={value}\n" for key, value in self._properties.items())
        configuration = self._home / "broker.conf"
        configuration.write_text(lines)
        with (self._home / "broker.out").open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "broker_core", "broker", "-c", str(configuration)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._home,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
            )

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def check_alive(self) -> None:
        if self._process is not None and self._process.returncode is not None:
            words = (self._home / "broker.out").read_text(errors="replace")[-2000:]
            raise AssertionError(f"our broker ended: {words}")


class Cluster:
    """A name server and the brokers that registered with it."""

    def __init__(self, name_server: str, brokers: Sequence[Any], client: RemotingClient) -> None:
        self.name_server = name_server
        self.brokers = list(brokers)
        self._client = client

    @property
    def broker(self) -> Any:
        """The first broker, for scenarios that have one."""
        return self.brokers[0]

    @property
    def broker_name(self) -> str:
        """Its name."""
        return str(self.broker.name)

    async def kill(self, number: int = 0) -> None:
        """End a broker without warning and wait until the name server has dropped it."""
        await self.brokers[number].kill()
        await self.until(lambda: self._is_routed(number), is_so=False)

    async def restart(self, number: int = 0) -> None:
        """Start a killed broker again and wait until it is registered and serves."""
        await self.brokers[number].start()
        await self.until(lambda: self._is_routed(number))

    async def until(
        self,
        condition: Callable[[], Any],
        timeout_s: float = START_TIMEOUT_S,
        is_so: bool = True,
    ) -> None:
        """Wait until the awaitable that `condition()` makes gives true (or false)."""
        loop = asyncio.get_running_loop()
        never: asyncio.Future[None] = loop.create_future()
        # By the clock: on a busy machine one look takes longer than all the pauses.
        deadline = loop.time() + timeout_s
        while loop.time() < deadline:
            if bool(await condition()) is is_so:
                return
            for broker in self.brokers:
                if is_so and hasattr(broker, "check_alive"):
                    broker.check_alive()
            await asyncio.wait((never,), timeout=POLL_S)
        raise AssertionError(f"not reached in {timeout_s} s")

    async def _is_routed(self, number: int) -> bool:
        """Whether the name server knows the broker's own topic, which every broker registers."""
        command = RemotingCommand(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": self.brokers[number].name}
        )
        answer = await self._client.request(self.name_server, command, REQUEST_TIMEOUT_MS)
        return answer.code == 0


@contextlib.asynccontextmanager
async def cluster(
    kind: str,
    tmp_path: Path,
    *,
    broker_names: Sequence[str] = ("broker-a",),
    properties: Mapping[str, str] | None = None,
    apache_name_server: bool = False,
) -> AsyncIterator[Cluster]:
    """A running cluster of `kind`; everything in it ends with the block."""
    async with contextlib.AsyncExitStack() as stack:
        client = patient_client()
        stack.push_async_callback(client.close)
        if apache_name_server:
            java = JavaNameServer(_version_of(kind), tmp_path / "name-server")
            stack.push_async_callback(java.kill)
            await java.start()
            name_server = java.address
        else:
            server = NameServer()
            name_server = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
            stack.push_async_callback(server.stop, 100)
        brokers = [
            _new_broker(kind, tmp_path / name, name_server, name, properties or {})
            for name in broker_names
        ]
        found = Cluster(name_server, brokers, client)
        for broker in brokers:
            stack.push_async_callback(broker.kill)
            await broker.start()
        for number in range(len(brokers)):
            await found.until(lambda number=number: found._is_routed(number))  # type: ignore[misc]
        yield found


def _new_broker(
    kind: str, home: Path, name_server: str, name: str, properties: Mapping[str, str]
) -> RunningBroker:
    if kind.startswith("apache-"):
        return ApacheBroker(_version_of(kind), home, name_server, name, properties)
    if kind == OURS:
        return OurBroker(home, name_server, name, properties)
    raise ValueError(f"there is no broker of kind {kind!r}")


def _version_of(kind: str) -> str:
    return kind.removeprefix("apache-")


def run_or_skip(run_async: Callable[..., Any], coroutine: Any, limit_s: float = 400.0) -> Any:
    """Run a scenario; skip it visibly when the peer's jars or Java cannot be had."""
    try:
        return run_async(coroutine, limit_s=limit_s)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
