"""A real Java transaction producer as a process; the bodies say what it does with them.

`unknown-unknown-commit-7`: the local transaction does not know, nor does the first check, the
second one commits.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tests.interop.java_client import compiled_class_path, java_tool

SOURCES: Final = Path(__file__).parent / "java_transactions"
WAIT_S: Final = 120

Row = list[str]


class JavaTransactionProducer:
    """`start` it, and `kill` it at the end."""

    def __init__(self, version: str, home: Path, name_server: str, group: str) -> None:
        coordinates = [f"org.apache.rocketmq:rocketmq-client:{version}"]
        self._class_path = compiled_class_path(f"rocketmq-client-{version}", coordinates, SOURCES)
        self._home = home
        self._arguments = (name_server, group)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.rows: list[Row] = []

    async def start(self) -> JavaTransactionProducer:
        self._home.mkdir(parents=True, exist_ok=True)
        with (self._home / "stderr").open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                java_tool("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                f"-Duser.home={self._home}", f"-Djava.io.tmpdir={self._home}",
                f"-Drocketmq.client.logRoot={self._home}",
                f"-Drocketmq.log.root={self._home}", "-Drocketmq.client.logLevel=WARN",
                "-cp", self._class_path, "TransactionDriver", *self._arguments,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self._reader = asyncio.ensure_future(self._read())
        await self.wait_for("ready", 1)
        return self

    async def send(self, topic: str, *bodies: str) -> list[Row]:
        """Send each in a transaction; the rows about it, when all are done."""
        before = len(self.of("sent")) + len(self.of("failed"))
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write("".join(f"{topic} {body}\n" for body in bodies).encode())
        done = before + len(bodies)
        await self._until(lambda: len(self.of("sent")) + len(self.of("failed")) >= done)
        assert not self.of("failed"), self._errors()
        return self.of("sent")[before:]

    def of(self, kind: str, body: str = "") -> list[Row]:
        """Rows of a kind, and about a body."""
        return [r for r in self.rows if r[0] == kind and (not body or r[1] == body)]

    async def wait_for(self, kind: str, count: int, body: str = "") -> list[Row]:
        await self._until(lambda: len(self.of(kind, body)) >= count)
        return self.of(kind, body)

    async def kill(self) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
        if self._reader is not None:
            await self._reader

    async def _until(self, reached: object) -> None:
        assert callable(reached)

        async def wait() -> None:
            while not reached():
                assert self._reader is not None and not self._reader.done(), self._errors()
                self._changed.clear()
                await self._changed.wait()

        try:
            await asyncio.wait_for(wait(), WAIT_S)
        except asyncio.TimeoutError:
            raise AssertionError(f"only {self.rows[-20:]}: {self._errors()}") from None

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        async for line in self._process.stdout:
            self.rows.append(line.decode().split())
            self._changed.set()
        self._changed.set()

    def _errors(self) -> str:
        return (self._home / "stderr").read_text(errors="replace")[-2_000:]
