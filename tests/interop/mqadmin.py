"""Apache RocketMQ's own `mqadmin`, many commands in one Java process.

`Mqadmin("5.5.0", name_server)` runs the published command classes through the small driver in
`java_admin/`; it can also keep Java consumers and producers alive, for commands that ask about
them. The driver's source is ours, everything it runs comes from Maven by coordinates.
"""

from __future__ import annotations

import base64
import re
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.interop.java_broker import _ARTIFACTS, SERVER_VERSIONS
from tests.interop.java_client import compiled_class_path, java_tool

MQADMIN_VERSIONS = tuple(reversed(SERVER_VERSIONS))
COMMAND_TIMEOUT_S = 90.0
TRIES = 4
NOT_TWICE = frozenset({"sendMessage", "sendMsgStatus", "checkMsgSendRT"})

_TIMED_OUT = re.compile(r"RemotingTimeoutException|RemotingTooMuchRequestException")
_SOURCES = Path(__file__).parent / "java_admin"
_QUIET_LOG = '<configuration><root level="OFF"/></configuration>'
_FLAGS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


class Printed(NamedTuple):
    """What a command printed, and the request codes it sent."""

    text: str
    codes: frozenset[int]

    @property
    def failed(self) -> bool:
        """Whether it says so; the tool exits with 0 whatever happens."""
        return re.search(r"Exception|command failed|CODE: \d", self.text) is not None

    @property
    def rows(self) -> list[list[str]]:
        """Lines that are not headings, as words."""
        return [line.split() for line in self.text.splitlines() if line and line[0] != "#"]


class Mqadmin:
    """One Java process; leave its `with` block at the end."""

    def __init__(self, version: str, name_server: str) -> None:
        self.version = version
        self.name_server = name_server
        self._home = tempfile.TemporaryDirectory(prefix="rmq-mqadmin-")
        home = Path(self._home.name)
        (home / "conf").mkdir()
        (home / "conf" / "logback_tools.xml").write_text(_QUIET_LOG)
        coordinates = [f"org.apache.rocketmq:{artifact}:{version}" for artifact in _ARTIFACTS]
        class_path = compiled_class_path(f"rocketmq-server-{version}", coordinates, _SOURCES)
        self._process = subprocess.Popen(
            [
                java_tool("java"),
                *_FLAGS,
                f"-Duser.home={home}",
                f"-Djava.io.tmpdir={home}",
                f"-Drocketmq.log.root={home}/logs",
                f"-Drocketmq.client.logRoot={home}/logs",
                "-cp",
                class_path,
                "AdminRunner",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"ROCKETMQ_HOME": str(home), "PATH": "/usr/bin:/bin"},
            # Some commands leave files where they are started.
            cwd=home,
        )
        # Its first request loads hundreds of classes while the clock runs.
        try:
            self.run("topicList")
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it can take another command; a wrong option ends the tool."""
        return self._process.poll() is None

    def run(self, *words: str) -> Printed:
        """One command against this cluster's name server, whatever it prints.

        The tool gives a server three seconds. A machine that is busy with other tests needs more
        now and then, so what timed out is asked again, unless that could send a message twice.
        """
        for _ in range(TRIES if words[0] not in NOT_TWICE else 1):
            printed = self._call([*words, "-n", self.name_server])
            if not _TIMED_OUT.search(printed.text):
                break
        return printed

    def ok(self, *words: str) -> Printed:
        """A command that must work."""
        printed = self.run(*words)
        assert not printed.failed, f"mqadmin {' '.join(words)}: {printed.text[-2000:]}"
        return printed

    def start_consumer(self, group: str, topic: str) -> None:
        """A Java push consumer that takes every message."""
        printed = self._call(["+consumer", self.name_server, group, topic])
        assert not printed.text, printed.text

    def consumed(self, group: str) -> int:
        """How many messages that consumer has been given."""
        return int(self._call(["?consumer", group]).text)

    def stop_consumer(self, group: str) -> None:
        """Shut it down."""
        printed = self._call(["-consumer", group])
        assert not printed.text, printed.text

    def start_producer(self, group: str, topic: str) -> None:
        """A Java producer that is known to the topic's brokers."""
        printed = self._call(["+producer", self.name_server, group, topic])
        assert not printed.text, printed.text

    def _call(self, words: list[str]) -> Printed:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = " ".join(base64.b64encode(word.encode()).decode() for word in words)
        # A command that hangs must not hang the tests.
        watch = threading.Timer(COMMAND_TIMEOUT_S, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().decode()
        finally:
            watch.cancel()
        if not answer:
            self._process.wait(COMMAND_TIMEOUT_S)
        assert answer.endswith("\n"), f"mqadmin {' '.join(words)} ended or took too long"
        printed, _, codes = answer.rstrip("\n").rpartition(" ")
        numbers = frozenset(int(code) for code in codes.split(",")[1:])
        return Printed(base64.b64decode(printed).decode("utf-8", "replace"), numbers)

    def __enter__(self) -> Mqadmin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process by its id."""
        self._process.kill()
        self._process.wait(COMMAND_TIMEOUT_S)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._home.cleanup()
