"""How many may connect and how long they may be silent; how a server stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.server import RemotingServer
from tests.codec.wire_frames import ROUTE_REQUEST_JSON
from tests.fakes.manual_clock import ManualClock
from tests.remoting.peers import (
    PATIENT_MS,
    client,
    echo,
    raw_peer,
    serving,
    small_limits,
    until,
)


def resident_size() -> int:
    with open("/proc/self/statm") as statm:  # noqa: PTH123
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_connections_beyond_the_limit_are_closed(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            serving(limits=small_limits(connections_max=2)) as (server, address),
            raw_peer(address) as first,
            raw_peer(address) as second,
        ):
            for peer in (first, second):
                peer.send(RemotingCommand(1))
                await peer.next()
            async with raw_peer(address) as third:
                assert await third.until_closed() == []
            first.writer.close()
            await until(lambda: server.budget.connections == 1)
            async with raw_peer(address) as fourth:
                fourth.send(RemotingCommand(1))
                assert (await fourth.next()).code == 0

    run_async(scenario())


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")  # noqa: PTH110
def test_two_thousand_idle_connections(
    run_async: Callable[..., Any], summary_lines: list[str]
) -> None:
    count = 2_000

    async def scenario() -> None:
        async with serving() as (server, address), client() as caller:
            await caller.request(address, RemotingCommand(1), PATIENT_MS)
            gc.collect()
            before = resident_size()
            target = ("127.0.0.1", int(address.rpartition(":")[2]))
            sockets: list[socket.socket] = []
            for expected in range(501, count + 2, 500):
                # Fewer than the listener queues, so that none of them blocks.
                sockets.extend(socket.create_connection(target) for _ in range(500))
                await until(lambda expected=expected: len(server.connections) == expected)  # type: ignore[misc]
            grown = resident_size() - before
            summary_lines.append(f"{count} idle connections: {grown >> 10} KiB")
            assert grown < 30 << 20
            server.sweep()
            assert (await caller.request(address, RemotingCommand(1), PATIENT_MS)).code == 0
            for one in sockets:
                one.close()
            await until(lambda: len(server.connections) == 1)
            assert server.budget.connections == 1

    run_async(scenario(), limit_s=300)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")  # noqa: PTH110
def test_announcing_much_and_sending_little(run_async: Callable[..., Any]) -> None:
    count = 1_000

    async def scenario() -> None:
        head = ((16 << 20) - 4).to_bytes(4, "big") + (64 << 10).to_bytes(4, "big")
        async with serving() as (server, address), contextlib.AsyncExitStack() as stack:
            sockets = []
            target = ("127.0.0.1", int(address.rpartition(":")[2]))
            for expected in (count // 2, count):
                for _ in range(count // 2):
                    one = stack.enter_context(socket.create_connection(target))
                    sockets.append(one)
                await until(lambda expected=expected: len(server.connections) == expected)  # type: ignore[misc]
            gc.collect()
            before = resident_size()
            for one in sockets:
                one.sendall(head)
            await until(lambda: server.budget.size == count * len(head))
            assert resident_size() - before < 20 << 20

    run_async(scenario())


def test_a_frame_must_arrive_in_time(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with (
            serving(clock=clock) as (server, address),
            raw_peer(address) as good,
            raw_peer(address) as slow,
        ):
            good.send(RemotingCommand(1))
            await good.next()
            # One byte every now and then does not help.
            for position in range(31):
                slow.send_bytes(ROUTE_REQUEST_JSON[position : position + 1])
                await until(lambda position=position: server.budget.size == position + 1)  # type: ignore[misc]
                server.sweep()
                clock.advance(1_000)
            server.sweep()
            assert await slow.until_closed() == []
            good.send(RemotingCommand(1))
            assert (await good.next()).code == 0

    run_async(scenario())


def test_idle_connections_are_closed(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        held = []

        def handler(connection: Connection, command: RemotingCommand) -> Any:
            if command.code == 11:
                held.append((connection, command))
                return None
            return command.reply()

        async with (
            serving(handler, clock=clock) as (server, address),
            raw_peer(address) as silent,
            raw_peer(address) as active,
            raw_peer(address) as waiting,
        ):
            waiting.send(RemotingCommand(11))
            await until(lambda: held and len(server.connections) == 3)
            for _ in range(3):
                active.send(RemotingCommand(1))
                await active.next()
                server.sweep()
                clock.advance(50_000)
            server.sweep()
            assert await silent.until_closed() == []
            assert len(server.connections) == 2
            held[0][0].send(held[0][1].reply())
            assert (await waiting.next()).code == 0

    run_async(scenario())


def test_the_server_sweeps_by_itself(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        limits = small_limits(sweep_interval_ms=1, idle_timeout_ms=1, partial_frame_timeout_ms=1)
        async with serving(limits=limits) as (_, address), raw_peer(address) as peer:
            assert await peer.until_closed() == []

    run_async(scenario())


def test_clients_close_what_is_idle_too(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with serving() as (server, address), client(clock=clock) as caller:
            await caller.request(address, RemotingCommand(1), PATIENT_MS)
            caller.sweep()
            clock.advance(121_000)
            caller.sweep()
            await until(lambda: not server.connections)
            assert (await caller.request(address, RemotingCommand(1), PATIENT_MS)).code == 0

    run_async(scenario())


# Stopping


def test_running_requests_are_answered_before_the_end(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        gate = asyncio.get_running_loop().create_future()

        async def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            await gate
            return command.reply(body=b"done")

        server = RemotingServer(handler)
        port = await server.start("127.0.0.1", 0)
        async with raw_peer(f"127.0.0.1:{port}") as peer:
            peer.send(RemotingCommand(10, opaque=1))
            await until(lambda: server.budget.requests == 1)
            stopping = asyncio.ensure_future(server.stop(10_000))
            await asyncio.sleep(0)
            # No new connections and no new requests.
            with pytest.raises(OSError):
                async with raw_peer(f"127.0.0.1:{port}"):
                    pass
            peer.send(RemotingCommand(10, opaque=2))
            refused = await peer.next()
            assert (refused.opaque, refused.code) == (2, ResponseCode.SERVICE_NOT_AVAILABLE)
            gate.set_result(None)
            answers = await peer.until_closed()
            assert [(answer.opaque, answer.body) for answer in answers] == [(1, b"done")]
            await stopping

    run_async(scenario())


def test_what_is_not_done_in_time_is_cancelled(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        cancelled = []

        async def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                cancelled.append(command.opaque)
            return command.reply()

        server = RemotingServer(handler)
        port = await server.start("127.0.0.1", 0)
        async with raw_peer(f"127.0.0.1:{port}") as peer:
            peer.send(RemotingCommand(10, opaque=1), RemotingCommand(10, opaque=2, flag=2))
            await until(lambda: server.budget.requests == 2)
            await server.stop(5)
            assert sorted(cancelled) == [1, 2]
            answers = await peer.until_closed()
            assert [(answer.opaque, answer.code) for answer in answers] == [(1, 1)]
            assert not server.connections

    run_async(scenario())


def test_stopping_with_a_peer_that_does_not_read(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            return command.reply(body=bytes(60 << 10))

        server = RemotingServer(handler, small_limits())
        port = await server.start("127.0.0.1", 0)
        async with raw_peer(f"127.0.0.1:{port}", limit=1 << 10) as peer:
            for _ in range(500):
                peer.send(RemotingCommand(11))
            await until(
                lambda: any(not connection.is_writable for connection in server.connections)
            )
            await server.stop(10)
            assert not server.connections

    run_async(scenario())


def test_stopping_twice_and_without_starting(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        server = RemotingServer(echo)
        await server.stop()
        await server.start("127.0.0.1", 0)
        await server.stop()
        await server.stop()

    run_async(scenario())
