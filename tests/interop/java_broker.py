"""Apache RocketMQ's own broker and administration tool as processes, for tests that talk to them.

`JavaBroker` owns its process, its home directory and its ports; it listens on loopback where the
release lets one choose. The jars come from Maven by coordinates.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.interop.loopback_ports import free_ports as free_ports
from tests.interop.maven_artifacts import PeerUnavailable, resolved_jars

SERVER_VERSIONS = ("4.9.7", "5.5.0")
START_TIMEOUT_S = 120
TOOL_TIMEOUT_S = 120
POLL_S = 0.05

_ARTIFACTS = ("rocketmq-broker", "rocketmq-namesrv", "rocketmq-tools")
_MODULE_FLAGS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
)
_QUICK_START_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Without it each server makes two RSA keys when it starts: 3 s of CPU.
NO_TLS: Final = "-Dtls.server.mode=disabled"
# Settings that save CPU of 5.x; 4.9 ignores them.
FRUGAL_PROPERTIES: Final[Mapping[str, str]] = {
    # The thread that saves the counts of transactions spins until this time has passed once: 10 s
    # of a core after each start with the default.
    "transactionMetricFlushInterval": "250",
    # Each time it compares all 38 MB of the timer wheel with its file: every second by default.
    "timerFlushIntervalMs": "10000",
}
# 4.9 insists on these files; 5.x carries its own.
_QUIET_LOG = '<configuration><root level="OFF"/></configuration>'


class JavaBrokerError(Exception):
    """The broker or the tool ended or did not do what was waited for."""


def server_class_path(version: str) -> str:
    """Resolves what is not cached yet; raises `PeerUnavailable` when it cannot be had."""
    _java_command()
    coordinates = [f"org.apache.rocketmq:{artifact}:{version}" for artifact in _ARTIFACTS]
    return f"{resolved_jars(f'rocketmq-server-{version}', coordinates)}/*"


def _java_command() -> str:
    java_home = os.environ.get("JAVA_HOME")
    in_home = shutil.which("java", path=str(Path(java_home) / "bin")) if java_home else None
    found = in_home or shutil.which("java")
    if found is None:
        raise PeerUnavailable("java is not installed")
    return found


class JavaBroker:
    """A broker process; `start` it inside a running event loop and `kill` it at the end."""

    def __init__(
        self,
        version: str,
        home: Path,
        name_server: str,
        properties: Mapping[str, str] | None = None,
        *,
        with_tls: bool = False,
    ) -> None:
        self.version = version
        self._tls_flags = () if with_tls else (NO_TLS,)
        self._class_path = server_class_path(version)
        self._home = home
        port, ha_port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.name_server = name_server
        self.process: asyncio.subprocess.Process | None = None
        self._properties = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(port),
            "haListenPort": str(ha_port),
            "namesrvAddr": name_server,
            "storePathRootDir": str(home / "store"),
            "mappedFileSizeCommitLog": str(1 << 20),
            "mappedFileSizeConsumeQueue": str(20_000),
            "maxHashSlotNum": "1000",
            "maxIndexNum": "4000",
            "autoCreateTopicEnable": "true",
            "flushDiskType": "ASYNC_FLUSH",
            **FRUGAL_PROPERTIES,
            **(properties or {}),
        }

    async def start(self) -> None:
        """Begin to start; wait for what you need with `until`."""
        conf = self._home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in ("logback_broker.xml", "logback_tools.xml"):
            (conf / name).write_text(_QUIET_LOG)
        lines = "".join(f"{key}={value}\n" for key, value in self._properties.items())
        (conf / "broker.conf").write_text(lines)
        with (self._home / "broker.out").open("wb") as output:
            self.process = await asyncio.create_subprocess_exec(
                *self._java("org.apache.rocketmq.broker.BrokerStartup"),
                "-c",
                str(conf / "broker.conf"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(),
            )

    async def until(self, reached: Callable[[], bool], timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until `reached()`; fails with the broker's last words if it ends before."""
        assert self.process is not None
        ended = asyncio.ensure_future(self.process.wait())
        try:
            for _ in range(int(timeout_s / POLL_S)):
                if reached():
                    return
                done, _ = await asyncio.wait((ended,), timeout=POLL_S)
                if done:
                    raise JavaBrokerError(f"the broker ended: {self._last_words()}")
            raise JavaBrokerError(f"not reached in {timeout_s} s: {self._last_words()}")
        finally:
            ended.cancel()

    async def kill(self) -> None:
        """End the process without shutdown hooks, by its id."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def mqadmin(self, *arguments: str) -> str:
        """The output of one administration command against this broker's name server."""
        tool = await asyncio.create_subprocess_exec(
            *self._java("org.apache.rocketmq.tools.command.MQAdminStartup"),
            *arguments,
            "-n",
            self.name_server,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment(),
            # Some commands leave files where they are started.
            cwd=self._home,
        )
        try:
            output, _ = await asyncio.wait_for(tool.communicate(), TOOL_TIMEOUT_S)
        except asyncio.TimeoutError:
            tool.kill()
            await tool.wait()
            raise JavaBrokerError(f"mqadmin {arguments[0]} took over {TOOL_TIMEOUT_S} s") from None
        text = output.decode(errors="replace")
        # The tool exits with 0 whatever happens.
        if re.search(r"Exception|command failed", text):
            raise JavaBrokerError(f"mqadmin {' '.join(arguments)}: {text[-2000:]}")
        return text

    def _java(self, main_class: str) -> list[str]:
        return [
            _java_command(),
            *_QUICK_START_FLAGS,
            *_MODULE_FLAGS,
            *self._tls_flags,
            f"-Duser.home={self._home}",
            f"-Djava.io.tmpdir={self._home}",
            f"-Drocketmq.log.root={self._home / 'logs'}",
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
            "-cp",
            f"{self._home / 'conf'}{os.pathsep}{self._class_path}",
            main_class,
        ]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "ROCKETMQ_HOME": str(self._home)}

    def _last_words(self) -> str:
        return (self._home / "broker.out").read_bytes()[-2000:].decode(errors="replace")
