"""A client over real sockets: answers, reconnects, servers that fail it in every way."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost, InvalidArgument, RequestTimeout, RmqError
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.client import RemotingClient, parse_address
from broker_core.remoting.connection import Connection
from broker_core.remoting.server import RemotingServer
from tests.codec.wire_frames import mutated, sample_frames
from tests.fakes.manual_clock import ManualClock
from tests.remoting.peers import (
    PATIENT_MS,
    RawPeer,
    client,
    echo,
    raw_server,
    serving,
    small_limits,
    until,
)


def test_requests_share_a_connection(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with serving() as (server, address), client() as caller:
            answers = await asyncio.gather(
                *(
                    caller.request(address, RemotingCommand(10, body=str(n).encode()), PATIENT_MS)
                    for n in range(300)
                )
            )
            assert [answer.body for answer in answers] == [str(n).encode() for n in range(300)]
            assert len(server.connections) == 1
            assert caller.connection_to(address) is await caller.connect(address, 1_000)

    run_async(scenario())


def test_answers_that_come_in_another_order(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held: list[tuple[Connection, RemotingCommand]] = []

        def handler(connection: Connection, command: RemotingCommand) -> None:
            held.append((connection, command))
            if len(held) == 20:
                random.Random(4).shuffle(held)
                for asker, asked in held:
                    asker.send(asked.reply(body=asked.body))

        async with serving(handler) as (_, address), client() as caller:
            answers = await asyncio.gather(
                *(
                    caller.request(address, RemotingCommand(10, body=bytes([n])), PATIENT_MS)
                    for n in range(20)
                )
            )
            assert [answer.body for answer in answers] == [bytes([n]) for n in range(20)]

    run_async(scenario())


def test_both_sides_ask_at_the_same_time(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            # Ask back before answering, on the same connection.
            back = await connection.request(RemotingCommand(307, body=command.body), PATIENT_MS)
            return command.reply(body=b"server " + bytes(back.body))

        def serve_back(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            return command.reply(body=b"client " + bytes(command.body))

        async with (
            serving(handler) as (_, address),
            client(request_handler=serve_back) as caller,
        ):
            answers = await asyncio.gather(
                *(
                    caller.request(address, RemotingCommand(1, body=b"%d" % n), PATIENT_MS)
                    for n in range(100)
                )
            )
            assert [a.body for a in answers] == [b"server client %d" % n for n in range(100)]

    run_async(scenario())


def test_a_client_without_a_handler_answers_not_supported(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            back = await connection.request(RemotingCommand(307), PATIENT_MS)
            return command.reply(body=str(back.code).encode())

        async with serving(handler) as (_, address), client() as caller:
            answer = await caller.request(address, RemotingCommand(1), PATIENT_MS)
            assert answer.body == b"3"

    run_async(scenario())


def test_oneway(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        seen = []

        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            seen.append((command.code, command.is_oneway))
            return command.reply()

        async with serving(handler) as (_, address), client() as caller:
            await caller.oneway(address, RemotingCommand(15))
            await caller.request(address, RemotingCommand(34), PATIENT_MS)
            assert seen == [(15, True), (34, False)]

    run_async(scenario())


def test_timeouts_leave_the_connection_alone(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held: list[tuple[Connection, RemotingCommand]] = []
        arrived = asyncio.Event()

        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
            if command.code == 11:
                held.append((connection, command))
                arrived.set()
                return None
            return command.reply(body=b"new")

        async with serving(handler) as (server, address), client() as caller:
            await caller.connect(address, PATIENT_MS)
            with pytest.raises(RequestTimeout):
                await caller.request(address, RemotingCommand(11), 10)
            await arrived.wait()
            # The late answer has no waiter.
            held[0][0].send(held[0][1].reply(body=b"late"))
            answer = await caller.request(address, RemotingCommand(12), PATIENT_MS)
            assert answer.body == b"new"
            assert len(server.connections) == 1

    run_async(scenario())


def test_a_cancelled_request(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held = []

        def handler(connection: Connection, command: RemotingCommand) -> None:
            held.append((connection, command))

        async with serving(handler) as (_, address), client() as caller:
            task = asyncio.ensure_future(caller.request(address, RemotingCommand(11), PATIENT_MS))
            await until(lambda: held)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            held[0][0].send(held[0][1].reply())
            connection = caller.connection_to(address)
            assert connection is not None
            await until(lambda: len(connection._in_flight) == 0)

    run_async(scenario())


def test_a_server_that_goes(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async def serve(peer: RawPeer) -> None:
            await peer.next()

        async with raw_server(serve) as address, client() as caller:
            for _ in range(2):
                with pytest.raises(ConnectionLost, match="closed by the peer"):
                    await caller.request(address, RemotingCommand(1), PATIENT_MS)
            assert caller.connection_to(address) is None

    run_async(scenario())


def test_reconnecting(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with client(clock=clock) as caller:
            server = RemotingServer(echo)
            port = await server.start("127.0.0.1", 0)
            address = f"127.0.0.1:{port}"
            await caller.request(address, RemotingCommand(1), PATIENT_MS)
            await server.stop()
            await until(lambda: caller.connection_to(address) is None)
            # The first failure costs nothing, the next ones 100, 200, 400 … ms.
            for wait_ms in (0, 100, 200, 400, 800, 1_600, 2_000, 2_000):
                with pytest.raises(ConnectionLost, match="could not be reached:"):
                    await caller.request(address, RemotingCommand(1), PATIENT_MS)
                if wait_ms:
                    clock.advance(wait_ms - 1)
                    # An attempt would succeed now; none is made.
                    server = RemotingServer(echo)
                    await server.start("127.0.0.1", port)
                    with pytest.raises(ConnectionLost) as raised:
                        await caller.request(address, RemotingCommand(1), PATIENT_MS)
                    assert str(raised.value) == (
                        f"{address} could not be reached: Connection refused"
                    )
                    await server.stop()
                    clock.advance(1.001)
            server = RemotingServer(echo)
            await server.start("127.0.0.1", port)
            assert (await caller.request(address, RemotingCommand(1), PATIENT_MS)).code == 0
            await server.stop()

    run_async(scenario())


def test_concurrent_requests_share_one_connection_attempt(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with serving() as (server, address), client() as caller:
            connections = await asyncio.gather(
                *(caller.connect(address, PATIENT_MS) for _ in range(50))
            )
            assert len(set(connections)) == 1
            assert len(server.connections) == 1

    run_async(scenario())


def test_a_server_that_does_not_accept(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            limits = small_limits(connect_timeout_ms=1_000)
            # Fill the queue of the listener; further connections hang.
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", listener.getsockname()[1]))
            async with client(limits=limits) as caller:
                with pytest.raises(RequestTimeout):
                    await caller.request(address, RemotingCommand(1), 10)
                with pytest.raises(ConnectionLost):
                    await caller.request(address, RemotingCommand(1), PATIENT_MS)
            for filler in fillers:
                filler.close()

    run_async(scenario())


def test_closing_fails_what_waits(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        def handler(connection: Connection, command: RemotingCommand) -> None:
            return None

        async with serving(handler) as (server, address):
            caller = RemotingClient()
            tasks = [
                asyncio.ensure_future(caller.request(address, RemotingCommand(1), 60_000))
                for _ in range(5)
            ]
            await until(lambda: server.budget.requests == 5)
            await caller.close()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, ConnectionLost) for result in results)
            with pytest.raises(ConnectionLost):
                await caller.request(address, RemotingCommand(1), 1_000)
            await until(lambda: not server.connections)
            await caller.close()

    run_async(scenario())


def test_closing_while_connecting(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address):
            caller = RemotingClient()
            task = asyncio.ensure_future(caller.request(address, RemotingCommand(1), 60_000))
            await asyncio.sleep(0)
            await caller.close()
            with pytest.raises((ConnectionLost, asyncio.CancelledError)):
                await task

    run_async(scenario())


def test_requests_that_cannot_be_written(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            serving() as (_, address),
            client(limits=small_limits()) as caller,
        ):
            for command in (
                RemotingCommand(1, body=bytes(65 << 10)),
                RemotingCommand(1, {"a": 1}),  # type: ignore[dict-item]
            ):
                with pytest.raises(InvalidArgument):
                    await caller.request(address, command, PATIENT_MS)
                with pytest.raises(InvalidArgument):
                    await caller.oneway(address, command)
            assert (await caller.request(address, RemotingCommand(1), PATIENT_MS)).code == 0

    run_async(scenario())


def test_a_hostile_server(run_async: Callable[..., Any], long_run: bool) -> None:
    rng = random.Random(77)
    frames = sample_frames()

    async def serve(peer: RawPeer) -> None:
        await peer.next()
        for _ in range(20):
            peer.send_bytes(mutated(rng.choice(frames), rng))
        peer.send_bytes(b"\xff" * 64)

    async def scenario() -> None:
        limits = small_limits(reconnect_delay_min_ms=1, reconnect_delay_max_ms=1)
        async with raw_server(serve) as address, client(limits=limits) as caller:
            for _ in range(2_000 if long_run else 100):
                try:
                    await caller.request(address, RemotingCommand(1), PATIENT_MS)
                except RmqError as error:
                    assert isinstance(error, ConnectionLost)
            assert caller.budget.requests == 0

    run_async(scenario())


def test_answers_beyond_the_frame_limit(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            return command.reply(body=bytes(100 << 10))

        async with serving(handler) as (_, address), client(limits=small_limits()) as caller:
            with pytest.raises(ConnectionLost, match="protocol violation"):
                await caller.request(address, RemotingCommand(1), PATIENT_MS)

    run_async(scenario())


def test_a_client_that_has_too_much_to_do(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held: list[RemotingCommand] = []

        def hold(connection: Connection, command: RemotingCommand) -> None:
            held.append(command)

        async def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            answers = [connection.begin_request(RemotingCommand(307), 60_000) for _ in range(5)]
            busy = await answers[4]
            return command.reply(body=str(busy.code).encode())

        limits = small_limits(requests_max=4)
        async with (
            serving(handler) as (_, address),
            client(limits=limits, request_handler=hold) as caller,
        ):
            answer = await caller.request(address, RemotingCommand(1), PATIENT_MS)
            assert answer.body == b"%d" % ResponseCode.SYSTEM_BUSY
            assert len(held) == 4

    run_async(scenario())


def test_a_request_after_the_connection_was_closed_opens_another(
    run_async: Callable[..., Any],
) -> None:
    async def scenario() -> None:
        async with serving() as (server, address), client() as caller:
            await caller.request(address, RemotingCommand(1), PATIENT_MS)
            connection = caller.connection_to(address)
            assert connection is not None
            connection.close("by the test")
            await until(lambda: not server.connections)
            assert (await caller.request(address, RemotingCommand(1), PATIENT_MS)).code == 0

    run_async(scenario())


def test_addresses() -> None:
    assert parse_address("broker-a:10911") == ("broker-a", 10911)
    assert parse_address(" 10.0.0.1:1 ") == ("10.0.0.1", 1)
    assert parse_address("[::1]:9876") == ("::1", 9876)
    for text in ("", "host", "host:", ":1", "host:70000", "host:-1", "host:x", "host:１"):
        with pytest.raises(InvalidArgument):
            parse_address(text)
