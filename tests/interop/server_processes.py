"""A name server and a broker as processes, Apache's or ours, behind one face.

`BrokerCluster(kind, home)` starts both on loopback ports of its own, waits until the broker is
routable and can stop, kill and start the broker again on the same store and port. Plain processes
and blocking calls, so that one cluster can serve a whole module of tests and the benchmarks.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost, RequestTimeout
from broker_core.protocol_codes import RequestCode
from tests.interop.java_broker import FRUGAL_PROPERTIES, NO_TLS, server_class_path
from tests.interop.java_client import java_tool
from tests.interop.loopback_ports import free_ports
from tests.interop.maven_artifacts import PeerUnavailable
from tests.patient_client import PATIENT_BROKER, patient_client

OURS = "ours"
BROKER_KINDS = (OURS, "5.5.0", "4.9.7")
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 90.0
POLL_S = 0.02
BROKER_NAME = "broker-a"

# What the installed script `rmq` does, for a checkout that is not installed.
_RMQ = (sys.executable, "-c", "import sys; from broker_core.cli.main import main; sys.exit(main())")
_ROOT = Path(__file__).resolve().parent.parent.parent
_MODULE_FLAGS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
)
QUICK_START_FLAGS = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", NO_TLS)
# Those of its own start script (bin/runbroker.sh), with the heap that two cores and 24 GiB leave
# room for instead of 8 GiB. Biased locking is gone from newer Java, which then ignores the flag.
MEASURING_FLAGS = (
    "-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow", "-XX:+AlwaysPreTouch",
    "-XX:MaxDirectMemorySize=2g", "-XX:-UseLargePages", "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:-UseBiasedLocking",
)  # fmt: skip
_LOG_FILES = ("logback_broker.xml", "logback_namesrv.xml", "logback_tools.xml")
_QUIET_LOG = '<configuration><root level="OFF"/></configuration>'


class ServerFailed(Exception):
    """A server process ended or did not become ready; its last words are in the text."""


def wait_until(reached: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll a condition that has no notification."""
    pause = threading.Event()
    # By the clock: on a busy machine one look takes longer than all the pauses.
    deadline = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > deadline:
            raise AssertionError(f"not reached in {timeout_s} s: {what}")
        pause.wait(POLL_S)


def our_broker_is_built() -> bool:
    """Whether this checkout can start a broker of ours."""
    return importlib.util.find_spec("broker_core.cli") is not None


class ServerProcess:
    """One server with its output in a file."""

    def __init__(self, command: list[str], home: Path, name: str, ready: str) -> None:
        self._command = command
        self._home = home
        self._ready = ready.encode()
        self._output = home / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Returns when the server says that it is ready, unless told not to wait."""
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._home,
                env={
                    **os.environ,
                    "ROCKETMQ_HOME": str(self._home),
                    "PYTHONPATH": str(_ROOT),
                    "PYTHONUNBUFFERED": "1",
                },
            )
        if not wait:
            return
        try:
            wait_until(self._is_ready, START_TIMEOUT_S, f"{self._ready!r} in its output")
        except AssertionError as late:
            self.kill()
            raise ServerFailed(f"{late}: {self.last_words()}") from None

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ServerFailed(f"ended with {self._process.returncode}: {self.last_words()}")
        return self._ready in self._output.read_bytes()

    def stop(self) -> None:
        """Ask it to end as an operator would, and wait."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise ServerFailed(f"did not stop in {STOP_TIMEOUT_S} s") from None

    def kill(self) -> None:
        """End it without any goodbye."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    def last_words(self) -> str:
        return self._output.read_bytes()[-3000:].decode(errors="replace")


class BrokerCluster:
    """One name server and one broker; `kind` is `ours` or a version of Apache RocketMQ."""

    def __init__(
        self,
        kind: str,
        home: Path,
        properties: Mapping[str, str] | None = None,
        *,
        java_flags: tuple[str, ...] = QUICK_START_FLAGS,
    ) -> None:
        self.kind = kind
        self._home = home
        self.store = home / "store"
        home.mkdir(parents=True, exist_ok=True)
        self._java_flags = java_flags
        self._name_port, self.port, ha_port = free_ports(3)
        self.name_server_address = f"127.0.0.1:{self._name_port}"
        self.address = f"127.0.0.1:{self.port}"
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": BROKER_NAME,
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(self.port),
            "haListenPort": str(ha_port),
            "namesrvAddr": self.name_server_address,
            "storePathRootDir": str(self.store),
            "autoCreateTopicEnable": "true",
            "flushDiskType": "ASYNC_FLUSH",
            **(properties or {}),
        }
        conf = home / "conf"
        conf.mkdir(exist_ok=True)
        if kind == OURS:
            # As Apache's below: a disk that others have filled is not what is tried here.
            settings = {
                "diskSpaceWarningLevelRatio": "99",
                "diskSpaceCleanForciblyRatio": "99",
                **settings,
            }
            if java_flags == QUICK_START_FLAGS:
                settings = {**PATIENT_BROKER, **settings}
            self.name_server = self._our_name_server()
        else:
            # Its default of 200 ms refuses sends whenever a shared machine pauses for a moment.
            settings = {"bindAddress": "127.0.0.1", "waitTimeMillsInSendQueue": "10000", **settings}
            if java_flags == QUICK_START_FLAGS:
                settings = {**FRUGAL_PROPERTIES, **settings}
            self.name_server = self._apache_name_server(conf)
        self._configuration = conf / "broker.conf"
        self._configuration.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        self.broker = self._broker_process()

    def _our_name_server(self) -> ServerProcess:
        if not our_broker_is_built():
            raise PeerUnavailable("our own broker is not built in this checkout")
        command = [*_RMQ, "namesrv", "--listen", self.name_server_address]
        return ServerProcess(command, self._home, "namesrv", "ready")

    def _apache_name_server(self, conf: Path) -> ServerProcess:
        for name in _LOG_FILES:
            (conf / name).write_text(_QUIET_LOG)
        (conf / "namesrv.conf").write_text(f"listenPort={self._name_port}\nbindAddress=127.0.0.1\n")
        main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
        command = [
            *self._java(QUICK_START_FLAGS), main_class, "-c", str(conf / "namesrv.conf"),
        ]  # fmt: skip
        return ServerProcess(command, self._home, "namesrv", "boot success")

    def _broker_process(self) -> ServerProcess:
        configuration = str(self._configuration)
        if self.kind == OURS:
            command = [*_RMQ, "broker", "-c", configuration]
            return ServerProcess(command, self._home, "broker", "ready")
        main_class = "org.apache.rocketmq.broker.BrokerStartup"
        command = [*self._java(self._java_flags), main_class, "-c", configuration]
        return ServerProcess(command, self._home, "broker", "boot success")

    def _java(self, flags: tuple[str, ...]) -> list[str]:
        return [
            java_tool("java"),
            *flags,
            *_MODULE_FLAGS,
            f"-Duser.home={self._home}",
            f"-Djava.io.tmpdir={self._home}",
            f"-Drocketmq.log.root={self._home / 'logs'}",
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
            "-cp",
            f"{self._home / 'conf'}{os.pathsep}{server_class_path(self.kind)}",
        ]

    def start(self) -> None:
        self.name_server.start()
        self.start_broker()

    def start_broker(self) -> None:
        """Returns when clients that ask the name server find the broker."""
        self.broker.start()
        wait_until(self.is_routed, START_TIMEOUT_S, f"a route to {BROKER_NAME}")

    def is_routed(self) -> bool:
        """Whether the name server knows the broker now."""
        return has_route(self.name_server_address, BROKER_NAME)

    def stop(self) -> None:
        """End both; what a test left in the store is not asked for any more.

        It goes at once: log files have their full size, and a complete run would leave dozens.
        """
        self.broker.kill()
        self.name_server.kill()
        shutil.rmtree(self.store, ignore_errors=True)

    def __enter__(self) -> BrokerCluster:
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


def has_route(name_server: str, topic: str) -> bool:
    """Whether the name server knows where this topic lives."""

    async def ask() -> bool:
        client = patient_client()
        try:
            command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            return (await client.request(name_server, command, 3_000)).code == 0
        except (ConnectionLost, RequestTimeout):
            # Busy with its start, or on a busy machine: the caller retries.
            return False
        finally:
            await client.close()

    return asyncio.run(ask())
