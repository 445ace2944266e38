"""A server over real sockets: pipelining, answers in any order, oneway, errors, noise."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.remoting.connection import Connection
from broker_core.remoting.server import RemotingServer, bind_address
from tests.codec.wire_frames import frame_bytes
from tests.remoting.peers import PATIENT_MS, echo, raw_peer, serving, until


def numbered(count: int, **options: Any) -> list[RemotingCommand]:
    return [
        RemotingCommand(10, {"n": str(number)}, b"body", opaque=number, **options)
        for number in range(count)
    ]


def test_many_requests_in_one_write(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address), raw_peer(address) as peer:
            peer.send(*numbered(500))
            answers = [await peer.next() for _ in range(500)]
            assert [answer.opaque for answer in answers] == list(range(500))
            assert all(answer.is_response and answer.body == b"body" for answer in answers)

    run_async(scenario())


def test_peers_that_send_junk_do_not_fill_the_log(
    run_async: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with serving() as (_, address):
            for _ in range(100):
                async with raw_peer(address) as peer:
                    peer.send_bytes(b"\xff" * 64)
                    assert await peer.until_closed() == []

    run_async(scenario())
    assert 0 < caplog.text.count("closing 127.0.0.1") <= 70


class RecordedTransport(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


def test_answers_of_one_wake_up_leave_in_one_write(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held: list[RemotingCommand] = []

        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
            if command.code == 10:
                return command.reply()
            held.append(command)
            return None

        transport = RecordedTransport()
        connection = Connection(RemotingServer(handler), asyncio.get_running_loop())
        connection.connection_made(transport)
        connection.data_received(b"".join(map(frame_bytes, numbered(50))))
        assert [data.count(b'"flag":1') for data in transport.writes] == [50]
        connection.data_received(frame_bytes(RemotingCommand(11)) * 7)
        assert len(transport.writes) == 1
        # Answers that are given later leave together, too.
        for command in held:
            connection.send(command.reply())
        connection.oneway(RemotingCommand(40))
        await asyncio.sleep(0)
        assert [data.count(b'"flag":1') for data in transport.writes] == [50, 7]
        assert transport.writes[1].count(b'"flag":2') == 1
        connection.connection_lost(None)

    run_async(scenario())


def test_answers_in_any_order(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held: list[tuple[Connection, RemotingCommand]] = []

        def handler(connection: Connection, command: RemotingCommand) -> None:
            held.append((connection, command))

        async with serving(handler) as (server, address), raw_peer(address) as peer:
            peer.send(*numbered(10))
            await until(lambda: len(held) == 10)
            assert server.budget.requests == 10
            for connection, command in reversed(held):
                connection.send(command.reply(ext={"n": command.ext["n"]}))
            answers = [await peer.next() for _ in range(10)]
            assert [answer.opaque for answer in answers] == list(range(9, -1, -1))
            assert all(answer.ext["n"] == str(answer.opaque) for answer in answers)
            assert (server.budget.requests, server.budget.size) == (0, 0)

    run_async(scenario())


def test_requests_with_the_same_id(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held = []

        def handler(connection: Connection, command: RemotingCommand) -> None:
            held.append((connection, command))

        async with serving(handler) as (server, address), raw_peer(address) as peer:
            peer.send(*(RemotingCommand(10, opaque=5) for _ in range(3)))
            await until(lambda: len(held) == 3)
            for connection, command in held:
                connection.send(command.reply())
            assert [(await peer.next()).opaque for _ in range(3)] == [5, 5, 5]
            assert (server.budget.requests, server.budget.size) == (0, 0)

    run_async(scenario())


@pytest.mark.parametrize(
    "noise",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x00\x06\x00\x00\x00\x02{]",
        b"\x00\x00\x00\x06\x02\x00\x00\x02{}",
        b"\x00\x00\x00\x06\x00\x00\x00\x03{}",
    ],
    ids=lambda noise: noise[:8].hex(),
)
def test_a_malformed_frame_closes_only_its_connection(
    run_async: Callable[..., Any], noise: bytes
) -> None:
    async def scenario() -> None:
        async with (
            serving() as (server, address),
            raw_peer(address) as good,
            raw_peer(address) as bad,
        ):
            good.send(*numbered(1))
            bad.send(*numbered(2))
            bad.send_bytes(noise)
            # What came before the noise is answered.
            assert [answer.opaque for answer in await bad.until_closed()] == [0, 1]
            await until(lambda: len(server.connections) == 1)
            good.send(*numbered(1))
            for _ in range(2):
                assert (await good.next()).code == 0

    run_async(scenario())


def test_responses_without_a_request(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address), raw_peer(address) as peer:
            peer.send(RemotingCommand(0, opaque=1, flag=1), RemotingCommand(0, opaque=1, flag=3))
            peer.send(*numbered(1))
            assert (await peer.next()).is_response

    run_async(scenario())


def test_requests_of_the_server(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        connections: list[Connection] = []

        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            connections.append(connection)
            return command.reply()

        async with serving(handler) as (_, address), raw_peer(address) as peer:
            peer.send(*numbered(1))
            await peer.next()
            (connection,) = connections
            answers = [connection.begin_request(RemotingCommand(307), PATIENT_MS) for _ in range(3)]
            connection.oneway(RemotingCommand(40))
            asked = [await peer.next() for _ in range(4)]
            # Their ids are a space of their own, which begins at 1.
            assert [command.opaque for command in asked[:3]] == [1, 2, 3]
            assert asked[3].is_oneway and asked[3].opaque == 4
            # A request with the same id is not an answer.
            peer.send(RemotingCommand(10, opaque=2), asked[1].reply(body=b"b"))
            peer.send(asked[2].reply(body=b"c"), asked[0].reply(body=b"a"))
            assert [(await answer).body for answer in answers] == [b"a", b"b", b"c"]
            assert (await peer.next()).opaque == 2

    run_async(scenario())


def test_attributes_and_close_callbacks_of_a_connection(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        seen: list[Connection] = []
        closed: list[str] = []

        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            connection.attributes["client"] = "id"
            connection.on_close(lambda c: closed.append(c.close_reason))
            connection.on_close(lambda c: 1 // 0)
            connection.on_close(lambda c: closed.append("second"))
            seen.append(connection)
            return command.reply()

        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with serving(handler) as (server, address):
            async with raw_peer(address) as peer:
                peer.send(*numbered(1))
                await peer.next()
                assert seen[0].peer == peer.writer.get_extra_info("sockname")
                assert seen[0].peer_text == f"127.0.0.1:{seen[0].peer[1]}"
            await until(lambda: len(closed) == 2)
            assert closed == ["closed by the peer", "second"]
            assert not server.connections
            seen[0].send(RemotingCommand(1))
            seen[0].on_close(lambda c: closed.append("late"))
            await until(lambda: len(closed) == 3)

    run_async(scenario())


def test_answers_after_the_peer_has_gone(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held = []
        gate = asyncio.get_running_loop().create_future()

        async def wait(command: RemotingCommand) -> RemotingCommand:
            await gate
            return command.reply()

        def handler(connection: Connection, command: RemotingCommand) -> Any:
            held.append((connection, command))
            return wait(command) if command.opaque == 0 else None

        async with serving(handler) as (server, address):
            async with raw_peer(address) as peer:
                peer.send(*numbered(2))
                await until(lambda: len(held) == 2)
            await until(lambda: not server.connections)
            # What is still worked on stays counted; what only waited for an answer is over.
            assert server.budget.requests == 1
            held[1][0].send(held[1][1].reply())
            gate.set_result(None)
            await until(lambda: server.budget.requests == 0)
            assert server.budget.size == 0

    run_async(scenario())


def test_one_server_on_several_addresses(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        server = RemotingServer(echo)
        ports = [await server.start("127.0.0.1", 0) for _ in range(2)]
        assert server.addresses == [("127.0.0.1", port) for port in ports]
        for port in ports:
            async with raw_peer(f"127.0.0.1:{port}") as peer:
                peer.send(*numbered(1))
                assert (await peer.next()).code == 0
        await server.stop()
        assert server.addresses == []

    run_async(scenario())


def test_a_port_that_is_taken(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address):
            other = RemotingServer(echo)
            with pytest.raises(OSError):
                await other.start("127.0.0.1", int(address.rpartition(":")[2]))
            await other.stop()

    run_async(scenario())


def test_a_port_of_the_systems_choice_is_not_shared() -> None:
    """A server binds long before it listens; a second one must not take its port meanwhile."""
    with bind_address("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: "):
            bind_address("127.0.0.1", port, reuse=False)


def test_the_first_to_listen_has_the_port(run_async: Callable[..., Any]) -> None:
    async def scenario(first: socket.socket, second: socket.socket) -> None:
        port = first.getsockname()[1]
        servers = [RemotingServer(echo), RemotingServer(echo)]
        assert await servers[0].serve(first) == port
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: "):
            await servers[1].serve(second)
        assert second.fileno() == -1
        for server in servers:
            await server.stop()

    with bind_address("127.0.0.1", 0) as any_port:
        port = any_port.getsockname()[1]
    run_async(scenario(bind_address("127.0.0.1", port), bind_address("127.0.0.1", port)))


def test_a_server_restarts_on_the_port_that_the_system_chose(run_async: Callable[..., Any]) -> None:
    """Its connections are in TIME_WAIT, since it closed them first."""

    async def scenario() -> None:
        port = 0
        for _ in range(2):
            server = RemotingServer(echo)
            port = await server.start("127.0.0.1", port)
            async with raw_peer(f"127.0.0.1:{port}") as peer:
                peer.send(*numbered(1))
                await peer.next()
                await server.stop()

    run_async(scenario())
