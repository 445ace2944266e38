"""Unauthenticated peers use little memory where accounts are required."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.config import RemotingLimits
from broker_core.errors import NoPermission
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.server import RemotingServer
from tests.codec.wire_frames import frame_bytes
from tests.remoting.peers import RawPeer, raw_peer, small_limits, until

SECRET = "right"
MIB = 1 << 20


def gate(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    """Like the gate of a broker: a peer is authenticated once it has sent the account."""
    if command.ext.get("AccessKey") != SECRET:
        raise NoPermission(ResponseCode.NO_PERMISSION, "who are you?")
    if connection.load.is_unauthenticated:
        connection.recognised()
    return command.reply(body=str(len(command.body)).encode())


@contextlib.asynccontextmanager
async def guarded(
    limits: RemotingLimits | None = None,
) -> AsyncIterator[tuple[RemotingServer, str]]:
    server = RemotingServer(gate, limits, needs_account=lambda host: True)
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.stop(1_000)


def sized(size: int, key: str | None, opaque: int = 1) -> bytes:
    ext = {} if key is None else {"AccessKey": key, "Signature": "s"}
    return frame_bytes(RemotingCommand(10, ext, bytes(size), opaque=opaque))


async def answer(peer: RawPeer) -> tuple[int, bytes]:
    command = await peer.next()
    return command.code, bytes(command.body)


def test_a_large_first_request_with_an_account_is_served(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with guarded() as (_, address), raw_peer(address) as peer:
            for opaque in (1, 2):
                peer.send_bytes(sized(4 * MIB, SECRET, opaque))
                assert await answer(peer) == (0, str(4 * MIB).encode())

    run_async(scenario())


def test_unsigned_bodies_are_read_and_discarded(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        frame = sized(8 * MIB, None)
        async with guarded() as (server, address), raw_peer(address) as peer:
            for start in range(0, len(frame) - 1, MIB):
                peer.send_bytes(frame[start : min(start + MIB, len(frame) - 1)])
                await peer.writer.drain()
                assert server.budget.size < MIB
            assert server.budget.size < 16 << 10
            peer.send_bytes(frame[-1:])
            code, _ = await answer(peer)
            assert code == ResponseCode.NO_PERMISSION
            # The connection is as good as before, and small requests keep their bodies.
            peer.send_bytes(sized(100, SECRET) + sized(2 * MIB, None, 2) + sized(MIB, SECRET, 3))
            assert await answer(peer) == (0, b"100")
            assert (await answer(peer))[0] == ResponseCode.NO_PERMISSION
            assert await answer(peer) == (0, str(MIB).encode())

    run_async(scenario())


@pytest.mark.parametrize("key", ["wrong", SECRET])
def test_unauthenticated_bodies_share_a_budget(run_async: Callable[..., Any], key: str) -> None:
    """Whether the account exists makes no difference before the body is there."""
    limits = RemotingLimits(frame_size_max=MIB, unauthenticated_size_max=2 * MIB)
    frame = sized(1000 << 10, key)

    async def scenario() -> None:
        async with guarded(limits) as (server, address), contextlib.AsyncExitStack() as stack:
            known = await stack.enter_async_context(raw_peer(address))
            known.send_bytes(sized(10, SECRET))
            assert (await answer(known))[0] == 0
            peers = [await stack.enter_async_context(raw_peer(address)) for _ in range(40)]
            for peer in peers:
                peer.send_bytes(frame[:-1])
            await until(lambda: server.budget.size > 2 * MIB)
            # Authenticated peers are not slowed down.
            for _ in range(20):
                known.send_bytes(sized(900 << 10, SECRET))
                assert (await answer(known))[0] == 0
            # The budget, one frame beyond it, and for each what came with one read.
            assert server.budget.size < 3 * MIB + len(peers) * (256 << 10)
            # Small first requests are served although the budget is used up.
            small = await stack.enter_async_context(raw_peer(address))
            small.send_bytes(sized(10 << 10, SECRET))
            assert await answer(small) == (0, str(10 << 10).encode())
            for peer in peers:
                peer.send_bytes(frame[-1:])
            for peer in peers:
                code, _ = await answer(peer)
                assert code == (0 if key == SECRET else ResponseCode.NO_PERMISSION)

    run_async(scenario())


def test_unauthenticated_headers_are_small(run_async: Callable[..., Any]) -> None:
    def header_of(size: int) -> bytes:
        return frame_bytes(RemotingCommand(10, {"AccessKey": SECRET, "x": "x" * size}, opaque=1))

    async def scenario() -> None:
        async with guarded() as (_, address):
            async with raw_peer(address) as peer:
                peer.send_bytes(header_of(17 << 10))
                assert await peer.until_closed() == []
            async with raw_peer(address) as peer:
                peer.send_bytes(sized(1, SECRET))
                assert (await answer(peer))[0] == 0
                peer.send_bytes(header_of(60 << 10))
                assert (await answer(peer))[0] == 0

    run_async(scenario())


def test_closed_unauthenticated_peers_release_everything(run_async: Callable[..., Any]) -> None:
    frame = sized(60 << 10, "wrong")
    limits = small_limits(unauthenticated_size_max=128 << 10)

    async def scenario() -> None:
        async with guarded(limits) as (server, address):
            for _ in range(3):
                async with contextlib.AsyncExitStack() as stack:
                    for _ in range(8):
                        peer = await stack.enter_async_context(raw_peer(address))
                        peer.send_bytes(frame[:-1])
                    await until(lambda: server.budget.size > 128 << 10)
                await until(lambda: not server.connections and server.budget.size == 0)
            async with raw_peer(address) as peer:
                peer.send_bytes(sized(60 << 10, SECRET))
                assert (await answer(peer))[0] == 0

    run_async(scenario())
