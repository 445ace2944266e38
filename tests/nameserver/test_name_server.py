"""The whole name server over real sockets: registration, routes, loss of a broker, bad frames."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker_core.codec.wire.bodies.topic_config import (
    DataVersion,
    TopicConfig,
    encode_register_body,
)
from broker_core.codec.wire.frame_parser import FrameParser
from broker_core.codec.wire.remoting_command import BINARY_HEADER, RemotingCommand, encode_command
from broker_core.nameserver.name_server import NameServer
from broker_core.nameserver.settings import NameServerSettings
from broker_core.protocol_codes import RequestCode
from tests.fakes.manual_clock import ManualClock

REGISTER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:10912",
    "brokerId": "0",
    "heartbeatTimeoutMillis": "10000",
}
BODY = encode_register_body(DataVersion(1), [TopicConfig("T1", 8, 8), TopicConfig("TBW102", 8, 8)])

RunAsync = Callable[..., Any]


class Peer:
    """One socket that asks and waits for each answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._parser = FrameParser()

    async def ask(
        self, code: int, body: bytes = b"", *, serialize_type: int = 0, flag: int = 0, **ext: str
    ) -> RemotingCommand:
        request = RemotingCommand(
            code, ext, body, opaque=5, serialize_type=serialize_type, flag=flag
        )
        self.writer.write(b"".join((encode_command(request), request.body)))
        return await self.answer()

    async def answer(self) -> RemotingCommand:
        while (command := self._parser.next_command()) is None:
            data = await self.reader.read(65_536)
            assert data, "the server closed the connection"
            self._parser.receive_data(data)
        assert command.opaque == 5
        return command

    async def route(self, topic: str = "T1") -> int:
        return (await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)).code

    async def until_gone(self) -> None:
        """Ask until the route is gone; the wait for each answer lets the server's loop work."""
        while await self.route() != 17:
            pass


class Running:
    """A started name server."""

    def __init__(self, server: NameServer, port: int, clock: ManualClock) -> None:
        self.server = server
        self.port = port
        self.clock = clock

    @asynccontextmanager
    async def peer(self) -> AsyncIterator[Peer]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Peer(reader, writer)
        finally:
            writer.close()
            # A reset by the server is as good an end as any.
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Running]:
    clock = ManualClock()
    server = NameServer(NameServerSettings(**settings), clock=clock)
    port = await server.start("127.0.0.1", 0)
    try:
        yield Running(server, port, clock)
    finally:
        await server.stop(100)


@pytest.mark.parametrize("serialize_type", [0, BINARY_HEADER])
def test_a_registered_topic_has_a_route(run_async: RunAsync, serialize_type: int) -> None:
    async def scenario() -> None:
        async with running() as run, run.peer() as broker, run.peer() as client:
            assert run.server.addresses == [("127.0.0.1", run.port)]
            answer = await broker.ask(
                RequestCode.REGISTER_BROKER, BODY, serialize_type=serialize_type, **REGISTER
            )
            assert (answer.code, answer.serialize_type) == (0, serialize_type)
            route = await client.ask(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, serialize_type=serialize_type, topic="T1"
            )
            assert route.code == 0
            found = json.loads(bytes(route.body))
            assert found["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
            assert await client.route("unknown") == 17

    run_async(scenario())


def test_a_broker_is_gone_as_soon_as_its_connection_closes(run_async: RunAsync) -> None:
    async def scenario() -> None:
        async with running() as run, run.peer() as client:
            async with run.peer() as broker:
                await broker.ask(RequestCode.REGISTER_BROKER, BODY, **REGISTER)
                assert await client.route() == 0
            await client.until_gone()
            async with run.peer() as broker:
                await broker.ask(RequestCode.REGISTER_BROKER, BODY, **REGISTER)
                assert await client.route() == 0
                broker.writer.transport.abort()
                await client.until_gone()

    run_async(scenario())


def test_a_silent_broker_expires_and_is_disconnected(run_async: RunAsync) -> None:
    async def scenario() -> None:
        async with running() as run, run.peer() as broker, run.peer() as client:
            await broker.ask(RequestCode.REGISTER_BROKER, BODY, **REGISTER)
            run.clock.advance(9_000)
            run.server.scan()
            assert await client.route() == 0
            run.clock.advance(1_001)
            run.server.scan()
            assert await client.route() == 17
            assert await broker.reader.read() == b""

    run_async(scenario())


def test_a_scan_after_a_standstill_removes_no_broker_the_first_time(run_async: RunAsync) -> None:
    async def scenario() -> None:
        async with running() as run, run.peer() as broker, run.peer() as client:
            await broker.ask(RequestCode.REGISTER_BROKER, BODY, **REGISTER)
            run.clock.advance(60_000)
            run.server.scan()
            assert await client.route() == 0, "a heartbeat may wait in the socket"
            run.server.scan()
            assert await client.route() == 17

    run_async(scenario())


def test_the_scan_repeats_by_itself(run_async: RunAsync) -> None:
    async def scenario() -> None:
        async with running(scan_interval_ms=6_000) as run, run.peer() as broker:
            await broker.ask(RequestCode.REGISTER_BROKER, BODY, **REGISTER)
            run.clock.advance(10_001)
            run.server._tick()
            assert run.server.table.route("T1") is None
            assert run.server._timer is not None

    run_async(scenario())


def test_a_oneway_registration_counts_and_is_not_answered(run_async: RunAsync) -> None:
    async def scenario() -> None:
        async with running() as run, run.peer() as broker:
            request = RemotingCommand(
                RequestCode.REGISTER_BROKER, dict(REGISTER), BODY, opaque=4, flag=2
            )
            broker.writer.write(b"".join((encode_command(request), request.body)))
            assert await broker.route() == 0, "the only answer is the second request's"

    run_async(scenario())


def test_refusals_are_answers(run_async: RunAsync) -> None:
    async def scenario() -> None:
        async with running() as run, run.peer() as peer:
            assert (await peer.ask(12_345)).code == 3
            bad_crc = {**REGISTER, "bodyCrc32": "1"}
            refused = await peer.ask(RequestCode.REGISTER_BROKER, BODY, **bad_crc)
            assert (refused.code, refused.remark) == (1, "crc32 not match")
            missing = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
            assert missing.code == 29
            assert "topic" in (missing.remark or "")
            for body in (b"{", b"\xff", b"[" * 10_000):
                assert (await peer.ask(RequestCode.REGISTER_BROKER, body, **REGISTER)).code == 29

    run_async(scenario())


def test_a_malformed_frame_closes_one_connection_only(run_async: RunAsync) -> None:
    async def scenario() -> None:
        async with running() as run, run.peer() as broker, run.peer() as attacker:
            await broker.ask(RequestCode.REGISTER_BROKER, BODY, **REGISTER)
            attacker.writer.write(struct.pack(">II", (1 << 31) - 1, 0))
            assert await attacker.reader.read() == b""
            assert await broker.route() == 0

    run_async(scenario())


def test_it_stops_with_connections_open_and_can_be_stopped_twice(run_async: RunAsync) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        server = NameServer(clock=clock)
        run = Running(server, await server.start(port=0), clock)
        async with run.peer() as broker:
            await broker.ask(RequestCode.REGISTER_BROKER, BODY, **REGISTER)
            await server.stop(100)
            assert await broker.reader.read() == b""
        await server.stop(100)

    run_async(scenario())
