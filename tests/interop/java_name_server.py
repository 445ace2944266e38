"""Apache RocketMQ's own name server as a process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost, RequestTimeout
from broker_core.protocol_codes import RequestCode
from tests.interop import java_broker
from tests.interop.java_broker import JavaBrokerError, server_class_path
from tests.interop.loopback_ports import free_ports
from tests.patient_client import patient_client


class JavaNameServer:
    """Owns its process, home directory and port; `kill` it at the end."""

    def __init__(self, version: str, home: Path) -> None:
        self._class_path = server_class_path(version)
        self._home = home
        [port] = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self.process: asyncio.subprocess.Process | None = None
        self._lines = f"listenPort={port}\nbindAddress=127.0.0.1\n"

    async def start(self) -> None:
        """Returns when it answers."""
        conf = self._home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        (conf / "logback_namesrv.xml").write_text(java_broker._QUIET_LOG)
        (conf / "namesrv.conf").write_text(self._lines)
        with (self._home / "name-server.out").open("wb") as output:
            self.process = await asyncio.create_subprocess_exec(
                java_broker._java_command(),
                *java_broker._QUICK_START_FLAGS,
                *java_broker._MODULE_FLAGS,
                java_broker.NO_TLS,
                f"-Duser.home={self._home}",
                f"-Djava.io.tmpdir={self._home}",
                "-cp",
                f"{conf}{os.pathsep}{self._class_path}",
                "org.apache.rocketmq.namesrv.NamesrvStartup",
                "-c",
                str(conf / "namesrv.conf"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "ROCKETMQ_HOME": str(self._home)},
            )
        await self._until_it_answers(self.process)

    async def kill(self) -> None:
        """End the process by its id."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def _until_it_answers(self, process: asyncio.subprocess.Process) -> None:
        client = patient_client()
        ended = asyncio.ensure_future(process.wait())
        command = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        try:
            for _ in range(int(java_broker.START_TIMEOUT_S / java_broker.POLL_S)):
                try:
                    await client.request(self.address, command, 1_000)
                except (ConnectionLost, RequestTimeout):
                    done, _ = await asyncio.wait((ended,), timeout=java_broker.POLL_S)
                else:
                    return
                if done:
                    break
            words = (self._home / "name-server.out").read_text(errors="replace")[-2000:]
            raise JavaBrokerError(f"the name server does not answer: {words}")
        finally:
            ended.cancel()
            await client.close()
