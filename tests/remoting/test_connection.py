"""Back-pressure: peers that send too much or read too little wait; memory stays bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RequestTimeout, SystemBusy
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.server import RemotingServer
from tests.codec.wire_frames import frame_bytes
from tests.fakes.manual_clock import ManualClock
from tests.remoting.peers import (
    PATIENT_MS,
    RawPeer,
    client,
    raw_peer,
    raw_server,
    serving,
    small_limits,
    until,
)


def unsent(server: RemotingServer) -> int:
    """Bytes that all connections hold for their peers."""
    return sum(
        c._transport.get_write_buffer_size() + c._out_size
        for c in server.connections
        if c._transport is not None
    )


def test_a_slow_reader_is_not_read_from(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        served = 0
        most = 0

        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            nonlocal served, most
            served += 1
            most = max(most, unsent(server))
            return command.reply(body=bytes(32 << 10))

        count = 2_000
        async with serving(handler, small_limits()) as (server, address):
            # A peer that reads nothing until all is sent, which it can never be at once.
            async with raw_peer(address, limit=1 << 10) as peer, client() as other:
                requests = frame_bytes(RemotingCommand(11)) * count
                peer.send_bytes(requests)
                await until(lambda: unsent(server) > 0)
                before = -1
                while before != served:
                    before = served
                    # Others are served meanwhile.
                    await other.request(address, RemotingCommand(1), PATIENT_MS)
                    before += 1
                assert served < count
                for _ in range(count):
                    await peer.next()
            assert most < 1 << 20
            assert server.budget.size == 0

    run_async(scenario())


def test_a_peer_that_never_reads_is_cut_off(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held: list[tuple[Connection, RemotingCommand]] = []

        def handler(connection: Connection, command: RemotingCommand) -> None:
            held.append((connection, command))

        async with (
            serving(handler, small_limits()) as (server, address),
            raw_peer(address, limit=1 << 10) as peer,
        ):
            peer.send_bytes(b"".join(frame_bytes(RemotingCommand(11, opaque=n)) for n in range(40)))
            await until(lambda: len(held) == 40)
            # Requests that were held are answered all at once, however little is read.
            connection = held[0][0]
            for _ in range(200):
                for _, command in held:
                    connection.send(command.reply(body=bytes(60 << 10)))
                await asyncio.sleep(0)
                if connection.is_closed:
                    break
            assert connection.is_closed and connection.close_reason == "the peer does not read"
            assert (server.budget.size, server.budget.requests) == (0, 0)

    run_async(scenario())


def test_a_stalled_reader_is_given_up_after_a_while(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        clock = ManualClock()

        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            return command.reply(body=bytes(60 << 10))

        limits = small_limits(write_stall_timeout_ms=60_000)
        async with (
            serving(handler, limits, clock) as (server, address),
            raw_peer(address, limit=1 << 10) as peer,
        ):
            peer.send_bytes(frame_bytes(RemotingCommand(11)) * 500)
            await until(lambda: unsent(server) > 64 << 10)
            server.sweep()
            clock.advance(59_000)
            server.sweep()
            assert server.connections
            clock.advance(2_000)
            server.sweep()
            await until(lambda: not server.connections)

    run_async(scenario())


def test_unanswered_bytes_make_a_connection_wait(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held: list[tuple[Connection, RemotingCommand]] = []

        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
            if command.code == 1:
                return command.reply()
            held.append((connection, command))
            return None

        async with (
            serving(handler, small_limits()) as (server, address),
            raw_peer(address) as peer,
            client() as other,
        ):
            body = bytes(20 << 10)
            peer.send(*(RemotingCommand(10, body=body, opaque=n) for n in range(40)))
            await until(lambda: len(held) == 4)
            for _ in range(20):
                await other.request(address, RemotingCommand(1), PATIENT_MS)
            assert len(held) == 4
            for number in range(40):
                await until(lambda number=number: len(held) > number)  # type: ignore[misc]
                connection, command = held[number]
                assert connection.load.size <= (64 + 22) << 10
                connection.send(command.reply())
            assert [(await peer.next()).opaque for _ in range(40)] == list(range(40))
            assert (server.budget.size, server.budget.requests) == (0, 0)

    run_async(scenario())


def test_all_bytes_together_are_limited(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held: list[tuple[Connection, RemotingCommand]] = []
        most = 0

        def handler(connection: Connection, command: RemotingCommand) -> None:
            nonlocal most
            most = max(most, server.budget.size)
            held.append((connection, command))

        async with (
            serving(handler, small_limits()) as (server, address),
            contextlib.AsyncExitStack() as stack,
        ):
            opened = [await stack.enter_async_context(raw_peer(address)) for _ in range(12)]
            for peer in opened:
                peer.send(*(RemotingCommand(10, body=bytes(50 << 10)) for _ in range(4)))
            answered = 0
            while answered < 48:
                await until(lambda: len(held) > answered)  # noqa: B023
                connection, command = held[answered]
                connection.send(command.reply())
                answered += 1
            for peer in opened:
                for _ in range(4):
                    await peer.next()
            # The limit, and what the last wake-up of each connection may have brought.
            assert most <= (256 << 10) + 12 * (256 << 10)
            assert (server.budget.requests, server.budget.size) == (0, 0)

    run_async(scenario())


def test_half_frames_do_not_fill_the_memory(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        limits = small_limits(
            frame_size_max=1 << 20,
            in_flight_size_max=2 << 20,
            ip_in_flight_size_max=2 << 20,
            write_buffer_max=2 << 20,
        )
        frame = frame_bytes(RemotingCommand(10, body=bytes(1_000_000)))
        async with (
            serving(limits=limits, clock=clock) as (server, address),
            client() as other,
            contextlib.AsyncExitStack() as stack,
        ):
            peers = [await stack.enter_async_context(raw_peer(address)) for _ in range(20)]
            for peer in peers:
                peer.send_bytes(frame[:-1])
            await until(lambda: server.budget.size > 2 << 20)
            for _ in range(50):
                # What fits into a read is still served.
                assert (await other.request(address, RemotingCommand(1), PATIENT_MS)).code == 0
                assert server.budget.size < (2 << 20) + len(frame) + 20 * (256 << 10)
            assert server.budget.size < 20 * len(frame)
            clock.advance(31_000)
            await other.request(address, RemotingCommand(1), PATIENT_MS)
            server.sweep()
            await until(lambda: len(server.connections) == 1)
            assert server.budget.size == 0
            assert (await other.request(address, RemotingCommand(1), PATIENT_MS)).code == 0

    run_async(scenario())


def test_large_frames_take_turns(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        limits = small_limits(
            frame_size_max=1 << 20,
            in_flight_size_max=2 << 20,
            ip_in_flight_size_max=2 << 20,
            write_buffer_max=2 << 20,
        )
        frame = frame_bytes(RemotingCommand(10, body=bytes(1_000_000)))
        most = 0

        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            nonlocal most
            most = max(most, server.budget.size)
            return command.reply(body=b"%d" % len(command.body))

        async with (
            serving(handler, limits) as (server, address),
            contextlib.AsyncExitStack() as stack,
        ):
            peers = [await stack.enter_async_context(raw_peer(address)) for _ in range(20)]
            for peer in peers:
                peer.send_bytes(frame * 2)
            for peer in peers:
                assert [(await peer.next()).body for _ in range(2)] == [b"1000000"] * 2
            assert most < (2 << 20) + 2 * len(frame) + 20 * (256 << 10)
            assert server.budget.size == 0

    run_async(scenario())


def test_a_client_waits_for_a_server_that_does_not_read(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()

        async def serve(peer: RawPeer) -> None:
            await gate.wait()
            while True:
                peer.send((await peer.next()).reply())

        async with raw_server(serve) as address, client(limits=small_limits()) as caller:
            connection = await caller.connect(address, PATIENT_MS)
            sent = []
            while connection.is_writable:
                command = RemotingCommand(10, body=bytes(60 << 10))
                sent.append(connection.begin_request(command, PATIENT_MS))
                await asyncio.sleep(0)
            # Callers that do not wait for room get an error in the end.
            with pytest.raises(SystemBusy):
                for _ in range(100):
                    command = RemotingCommand(10, body=bytes(60 << 10))
                    sent.append(connection.begin_request(command, PATIENT_MS))
            with pytest.raises(SystemBusy):
                connection.oneway(RemotingCommand(10))
            assert not connection.is_closed
            with pytest.raises(RequestTimeout):
                await caller.request(address, RemotingCommand(10), 5)
            waiting = asyncio.ensure_future(
                caller.request(address, RemotingCommand(10), PATIENT_MS)
            )
            gate.set()
            assert (await waiting).is_response
            await asyncio.gather(*sent)

    run_async(scenario())


def test_both_sides_flood_each_other(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            return command.reply(body=command.body)

        async with (
            serving(handler, small_limits()) as (_, address),
            client(limits=small_limits()) as caller,
        ):
            answers = await asyncio.gather(
                *(
                    caller.request(address, RemotingCommand(1, body=bytes(50 << 10)), PATIENT_MS)
                    for _ in range(400)
                )
            )
            assert all(len(answer.body) == 50 << 10 for answer in answers)

    run_async(scenario())


def test_work_that_waits_for_its_own_connection(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            # Its answer is behind the requests that are too many.
            back = await connection.request(RemotingCommand(307, body=b"ask"), PATIENT_MS)
            return command.reply(body=back.body)

        def answer_back(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            return command.reply(body=command.body)

        async with (
            serving(handler, small_limits()) as (server, address),
            client(limits=small_limits(), request_handler=answer_back) as caller,
        ):
            answers = await asyncio.gather(
                *(
                    caller.request(address, RemotingCommand(1, body=bytes(50 << 10)), PATIENT_MS)
                    for _ in range(100)
                )
            )
            done = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
            assert done and all(answer.body == b"ask" for answer in done)
            assert {answer.code for answer in answers} <= {0, ResponseCode.SYSTEM_BUSY}
            assert (server.budget.requests, server.budget.size) == (0, 0)

    run_async(scenario())
