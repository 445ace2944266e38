"""Servers on loopback ports, and peers that speak to them in raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

from broker_core.codec.wire.frame_parser import FrameParser
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.config import RemotingLimits
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.remoting.server import RemotingServer
from broker_core.runtime.clock import Clock
from tests.codec.wire_frames import frame_bytes

# For requests that are answered: a machine that pauses for a while must not make them fail.
PATIENT_MS = 120_000
SMALL = RemotingLimits(
    frame_size_max=64 << 10,
    header_size_max=4 << 10,
    write_buffer_high=64 << 10,
    write_buffer_max=1 << 20,
    connection_in_flight_size_max=64 << 10,
    ip_in_flight_size_max=128 << 10,
    in_flight_size_max=256 << 10,
)


def small_limits(**changes: int) -> RemotingLimits:
    return dataclasses.replace(SMALL, **changes)


def echo(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    """Answers with what was asked."""
    return command.reply(0, ext=dict(command.ext), body=command.body)


@contextlib.asynccontextmanager
async def serving(
    handler: Handler = echo, limits: RemotingLimits | None = None, clock: Clock | None = None
) -> AsyncIterator[tuple[RemotingServer, str]]:
    """A server and its address; stopped at the end."""
    server = RemotingServer(handler, limits, clock=clock)
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.stop(1_000)


@contextlib.asynccontextmanager
async def client(**options: Any) -> AsyncIterator[RemotingClient]:
    """A client, closed at the end."""
    one = RemotingClient(**options)
    try:
        yield one
    finally:
        await one.close()


class RawPeer:
    """The other end of a socket, with no rules of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._parser = FrameParser()

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, *commands: RemotingCommand) -> None:
        """All in one write."""
        self.writer.write(b"".join(map(frame_bytes, commands)))

    async def next(self) -> RemotingCommand:
        """The next command that arrives."""
        while (command := self._parser.next_command()) is None:
            data = await self.reader.read(1 << 16)
            if not data:
                raise EOFError
            self._parser.receive_data(data)
        return command

    async def until_closed(self) -> list[RemotingCommand]:
        """What arrives until the other side closes."""
        found = []
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                found.append(await self.next())
        return found


@contextlib.asynccontextmanager
async def raw_peer(address: str, **options: Any) -> AsyncIterator[RawPeer]:
    """A raw connection to `address`."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), **options)
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def raw_server(
    serve: Callable[[RawPeer], Any],
) -> AsyncIterator[str]:
    """An address where each connection is served by `serve(peer)`."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(EOFError, ConnectionError):
                await serve(RawPeer(reader, writer))
        finally:
            writer.close()

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def until(condition: Callable[[], object], limit_s: float = 120.0) -> None:
    """Let the loop run until something is so; the limit is for what hangs, not for what is slow."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while not condition():
        assert loop.time() < deadline, "it never came to be"
        await asyncio.sleep(0)
