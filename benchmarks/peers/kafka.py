"""A local Kafka and the jars of Spark's Kafka connector, the usual alternative.

    with KafkaServer(directory) as kafka:
        kafka.create_topic("orders", partitions=4)
        kafka.fill("orders", count=100_000, size=100)
        spark.readStream.format("kafka").options(**kafka.options)…

One process on loopback ports of its own, its data below the directory it was given, ended by its
process id. Jars come from Maven by coordinates, into the cache of the other peers.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.interop.java_broker import free_ports
from tests.interop.java_client import java_tool
from tests.interop.maven_artifacts import resolved_jars
from tests.interop.server_processes import START_TIMEOUT_S, ServerProcess, wait_until

VERSION: Final = "4.1.2"
# The newest connector there is; it reads and writes on Spark 4.2.1, but not on later ones.
SPARK: Final = "4.2.1"
_CONNECTOR: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
_TOOL_TIMEOUT_S: Final = 300


def server_class_path() -> str:
    """Jars of the server and its tools; raises `PeerUnavailable`."""
    wanted = [f"org.apache.kafka:{name}:{VERSION}" for name in ("kafka_2.13", "kafka-tools")]
    return f"{resolved_jars(f'kafka-{VERSION}', wanted)}/*"


def connector_jars() -> list[Path]:
    """For `spark.jars`; raises `PeerUnavailable`."""
    return sorted(resolved_jars("spark-kafka-4.2.0", _CONNECTOR, alone=True).glob("*.jar"))


class KafkaServer:
    """Broker and controller in one process."""

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self._class_path = server_class_path()
        port, controller = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._configuration = home / "server.properties"
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(home / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        text = "".join(f"{name}={value}\n" for name, value in values.items())
        self._configuration.write_text(text)
        command = [*self._java("-Xmx1g"), "kafka.Kafka", str(self._configuration)]
        self._server = ServerProcess(command, home, "kafka", "")

    @property
    def options(self) -> dict[str, str]:
        """For `.format("kafka")`."""
        return {"kafka.bootstrap.servers": self.address}

    @property
    def process_id(self) -> int:
        return self._server.pid

    def start(self) -> None:
        """Format the log directory and serve."""
        if not (self._home / "data").exists():
            identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            arguments = ("format", "-t", identity, "-c", str(self._configuration))
            self._tool("kafka.tools.StorageTool", *arguments)
        self._server.start()
        # It has no logging library and so writes no log; it is ready when it listens.
        wait_until(self._listens, START_TIMEOUT_S, f"Kafka at {self.address}")

    def _listens(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def stop(self) -> None:
        """Kill the server; its data is not needed after that."""
        self._server.kill()

    def __enter__(self) -> KafkaServer:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def create_topic(
        self, topic: str, partitions: int = 4, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` are those of the topic, such as flush.messages."""
        given = [part for name, value in (settings or {}).items() for part in
                 ("--config", f"{name}={value}")]  # fmt: skip
        self._tool(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, "--create",
            "--topic", topic, "--partitions", str(partitions), "--replication-factor", "1", *given,
        )  # fmt: skip

    def fill(self, topic: str, count: int, size: int) -> None:
        """`count` messages of `size` bytes, spread over the partitions."""
        self._tool(*self._load(topic, count, size, -1, "batch.size=65536", "linger.ms=5"))

    def fill_with(self, topic: str, lines: Sequence[bytes], count: int) -> None:
        """Send `count` messages; each has one of the lines as its body."""
        path = self._home / f"{topic}.lines"
        path.write_bytes(b"\n".join(lines) + b"\n")
        load = self._load(topic, count, 0, -1, "batch.size=65536", "linger.ms=5")
        place = load.index("--record-size")
        load[place : place + 2] = ["--payload-file", str(path)]
        self._tool(*load)

    @contextlib.contextmanager
    def trickle(self, topic: str, per_second: int, size: int = 100) -> Iterator[None]:
        """A producer that sends all the time, message by message, while the block runs."""
        arguments = self._load(topic, 1 << 30, size, per_second, "linger.ms=0", "batch.size=1")
        with (self._home / "trickle.out").open("wb") as output:
            process = subprocess.Popen(
                [*self._java("-Xmx256m"), *arguments], stdout=output, stderr=output, cwd=self._home
            )
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def _load(self, topic: str, count: int, size: int, rate: int, *settings: str) -> list[str]:
        return [
            "org.apache.kafka.tools.ProducerPerformance", "--topic", topic,
            "--num-records", str(count), "--record-size", str(size), "--throughput", str(rate),
            "--producer-props", f"bootstrap.servers={self.address}", *settings,
        ]  # fmt: skip

    def _java(self, *flags: str) -> list[str]:
        return [
            java_tool("java"),
            *flags,
            f"-Duser.home={self._home}",
            f"-Djava.io.tmpdir={self._home}",
            "-cp",
            self._class_path,
        ]

    def _tool(self, main_class: str, *arguments: str) -> str:
        done = subprocess.run(
            [*self._java("-Xmx512m"), main_class, *arguments],
            capture_output=True,
            text=True,
            timeout=_TOOL_TIMEOUT_S,
            check=False,
            cwd=self._home,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{main_class}: {(done.stderr or done.stdout)[-2000:]}")
        return done.stdout
