"""One member of an embedded cluster: its process, directory and ports."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker_core.embedded.broker_process import BrokerProcess
from broker_core.embedded.standalone_server import HOST
from broker_core.errors import EmbeddedBrokerFailed
from broker_core.runtime.clock import Clock

NAME_SERVER: Final = "namesrv"
STORE_DIR: Final = "store"
STOP_TIMEOUT_S: Final = 10.0

_NAME_SERVER_READY = re.compile(r"rmq namesrv ready on (\S+:\d+)\s*")
_BROKER_READY = re.compile(r"rmq broker \S+ ready on (\S+:\d+)[^\n]*\s*")


class ClusterNode:
    """A name server or a broker. A restart uses the same directory and ports."""

    def __init__(
        self,
        name: str,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        is_temporary: bool = False,
    ) -> None:
        self.name = name
        """`namesrv`, or the broker's name and id as `broker-a:0`."""
        self.directory = directory
        """Where its store and its log are."""
        self.address = ""
        """`host:port` that clients connect to; known once it was started."""
        self._properties = dict(properties or {})
        self._is_temporary = is_temporary
        self._process: BrokerProcess | None = None

    def __repr__(self) -> str:
        state = f"process {self.process_id}" if self.is_running else "not running"
        return f"<ClusterNode {self.name} {self.address or 'never started'}, {state}>"

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.exit_code is None

    @property
    def process_id(self) -> int:
        return self._running().process_id

    @property
    def ha_address(self) -> str:
        """`host:port` for slaves, while it is a master."""
        return f"{HOST}:{self._properties['haListenPort']}"

    @property
    def store_dir(self) -> Path:
        """Directory of its store."""
        return self.directory / STORE_DIR

    @property
    def log_path(self) -> Path:
        """File of its log."""
        return self.directory / "server.log"

    @property
    def broker_name(self) -> str:
        """Master and slaves share one."""
        return self.name.partition(":")[0]

    @property
    def broker_id(self) -> int:
        """0 for a master, as in its name. A promotion changes the id and not the name."""
        return int(self.name.partition(":")[2] or "0")

    @property
    def is_master(self) -> bool:
        """Whether a broker takes messages after its next start, unless it finds a newer master."""
        return self._properties.get("brokerRole") != "SLAVE"

    def begin(self) -> None:
        """Start the process; `wait_ready` must follow."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = "namesrv" if self.name == NAME_SERVER else "broker"
        self._process = BrokerProcess(
            self._arguments(command), self.directory, self.log_path, command
        )

    def wait_ready(self, clock: Clock, timeout_s: float) -> None:
        """Wait until it serves; raises `EmbeddedBrokerFailed` with its log."""
        assert self._process is not None
        ready = _NAME_SERVER_READY if self.name == NAME_SERVER else _BROKER_READY
        try:
            [self.address] = self._process.wait_ready(clock, timeout_s, ready)
        except EmbeddedBrokerFailed as error:
            self.kill()
            raise EmbeddedBrokerFailed(f"{self.name}: {error}") from None
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it cleanly, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.stop(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it as a crash would, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def pause(self) -> None:
        """Stop the process (SIGSTOP), as in a long garbage collection."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """The opposite of `pause`."""
        self._running().send_signal(signal.SIGCONT)

    def set_properties(self, **properties: str) -> None:
        """Change settings for the next start."""
        self._properties.update(properties)

    def _running(self) -> BrokerProcess:
        if self._process is None:
            raise EmbeddedBrokerFailed(f"{self.name} is not running; start it again")
        return self._process

    def _arguments(self, command: str) -> list[str]:
        arguments = ["--exit-with-parent"]
        if self._is_temporary:
            arguments.append(f"--remove-when-orphaned={self.directory}")
        if command == "namesrv":
            return [*arguments, f"--listen={self.address or self._properties['listen']}"]
        arguments.append(f"--property=storePathRootDir={self.store_dir}")
        return arguments + [f"--property={key}={text}" for key, text in self._properties.items()]
