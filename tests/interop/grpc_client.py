"""Apache's proxy in cluster mode, and gRPC clients of 5.x that consume through it.

`Proxy` is Apache's process in front of any cluster; `GrpcClient` one Java process with producers
and consumers of the gRPC client, driven like the others (`driven_client.py`). Both come from Maven
by coordinates, unmodified.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType

from tests.interop.driven_client import DrivenClient
from tests.interop.java_client import compiled_class_path, java_tool
from tests.interop.loopback_ports import free_ports
from tests.interop.maven_artifacts import resolved_jars
from tests.interop.server_processes import _MODULE_FLAGS, QUICK_START_FLAGS, ServerProcess

PROXY_VERSION = "5.5.0"
GRPC_CLIENT_VERSION = "5.2.0"

_HERE = Path(__file__).parent


def proxy_jars() -> Path:
    """What Apache's proxy consists of."""
    return resolved_jars(
        f"rocketmq-proxy-{PROXY_VERSION}", [f"org.apache.rocketmq:rocketmq-proxy:{PROXY_VERSION}"]
    )


def grpc_class_path() -> str:
    """Our driver compiled against the gRPC client, and that client."""
    return compiled_class_path(
        f"rocketmq-client-java-{GRPC_CLIENT_VERSION}",
        [f"org.apache.rocketmq:rocketmq-client-java:{GRPC_CLIENT_VERSION}"],
        _HERE / "java_grpc",
        also=(_HERE / "java_client" / "JsonText.java",),
    )


class Proxy:
    """Apache's proxy before the brokers of a name server; `address` is for gRPC clients."""

    def __init__(self, home: Path, name_server: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        grpc_port, remoting_port = free_ports(2)
        self.address = f"127.0.0.1:{grpc_port}"
        settings = {
            "rocketMQClusterName": "DefaultCluster",
            "proxyClusterName": "DefaultCluster",
            "proxyMode": "cluster",
            "namesrvAddr": name_server,
            "grpcServerPort": grpc_port,
            "remotingListenPort": remoting_port,
            "localServeAddr": "127.0.0.1",
        }
        configuration = home / "rmq-proxy.json"
        configuration.write_text(json.dumps(settings))
        command = [
            java_tool("java"), *QUICK_START_FLAGS, *_MODULE_FLAGS, f"-Duser.home={home}",
            f"-Djava.io.tmpdir={home}", f"-Drocketmq.log.root={home / 'logs'}",
            "-cp", f"{proxy_jars()}{os.sep}*", "org.apache.rocketmq.proxy.ProxyStartup",
            "-pc", str(configuration),
        ]  # fmt: skip
        self._process = ServerProcess(command, home, "proxy", "startup successfully")

    def __enter__(self) -> Proxy:
        self._process.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()


class GrpcClient(DrivenClient):
    """One Java process with its gRPC clients."""

    language = "Java gRPC"

    def __init__(self, version: str = GRPC_CLIENT_VERSION) -> None:
        self._class_path = grpc_class_path()
        super().__init__(version)

    def _command(self, home: str) -> list[str]:
        flags = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        return [
            java_tool("java"), *flags, f"-Duser.home={home}", f"-Djava.io.tmpdir={home}",
            "-cp", self._class_path, "GrpcScenarios",
        ]  # fmt: skip
