"""Large answers to pulls are received in place: the same bytes in every surrounding."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost, RequestTimeout
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import ClientConnection, Connection
from tests.codec.wire_frames import frame_bytes
from tests.remoting.peers import PATIENT_MS, RawPeer, client, raw_server, serving

BODY = os.urandom(3 << 20)
PULL, OTHER = RequestCode.BULK_PULL, RequestCode.GET_BROKER_CONFIG


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    def on_loop(coroutine: Any) -> None:
        loop = importlib.import_module(request.param).new_event_loop()
        try:
            loop.run_until_complete(asyncio.wait_for(coroutine, 300))
        finally:
            loop.close()

    return on_loop


def slices(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    """Answers with as many bytes as it is asked for."""
    return command.reply(body=BODY[: int(command.ext["size"])])


def asking(code: int, size: int) -> RemotingCommand:
    return RemotingCommand(code, {"size": str(size)})


def test_answers_of_all_sizes(run: Callable[[Any], None]) -> None:
    sizes = [0, 1, 65_535, 65_536, 65_537, 100_000, 262_144, 1 << 20, len(BODY), 7]

    async def scenario() -> None:
        async with serving(slices) as (_, address), client() as caller:
            for code in (PULL, OTHER):
                answers = await asyncio.gather(
                    *(caller.request(address, asking(code, size), PATIENT_MS) for size in sizes)
                )
                assert [bytes(answer.body) for answer in answers] == [BODY[:n] for n in sizes]
                views = [type(answer.body) is memoryview for answer in answers]
                # Only the reader of a pull takes any buffer.
                assert views[sizes.index(len(BODY))] is (code == PULL)
                assert not views[0] and not views[-1]
            assert type(caller.connection_to(address)) is ClientConnection

    run(scenario())


@pytest.mark.parametrize("step", [4_099, 70_001, 1 << 20])
def test_pieces_with_other_answers_behind(run: Callable[[Any], None], step: int) -> None:
    async def scenario() -> None:
        async def serve(peer: RawPeer) -> None:
            asked = [await peer.next() for _ in range(3)]
            data = b"".join(
                frame_bytes(command.reply(body=body))
                for command, body in zip(asked, (BODY, b"small", BODY[::-1]), strict=True)
            )
            for start in range(0, len(data), step):
                peer.send_bytes(data[start : start + step])
                await peer.writer.drain()
            await peer.until_closed()

        async with raw_server(serve) as address, client() as caller:
            answers = await asyncio.gather(
                *(caller.request(address, asking(PULL, 0), PATIENT_MS) for _ in range(3))
            )
            assert [bytes(answer.body) for answer in answers] == [BODY, b"small", BODY[::-1]]

    run(scenario())


@pytest.mark.parametrize("left", [1, 2, 65_535, 262_143, 262_144, 262_145, 300_000])
def test_the_end_comes_late_and_byte_by_byte(run: Callable[[Any], None], left: int) -> None:
    """The kernel may be asked to wait for many bytes, but never for more than there will be."""

    async def scenario() -> None:
        async def serve(peer: RawPeer) -> None:
            data = frame_bytes((await peer.next()).reply(body=BODY))
            peer.send_bytes(data[:-left])
            await peer.writer.drain()
            for start in range(len(data) - left, len(data), max(1, left // 7)):
                peer.send_bytes(data[start : start + max(1, left // 7)])
                await peer.writer.drain()
                await asyncio.sleep(0)
            # One byte at a time from now on.
            for byte in frame_bytes((await peer.next()).reply(body=b"small")):
                peer.send_bytes(bytes([byte]))
                await peer.writer.drain()
            await peer.until_closed()

        async with raw_server(serve) as address, client() as caller:
            answer = await caller.request(address, asking(PULL, 0), PATIENT_MS)
            assert bytes(answer.body) == BODY
            answer = await caller.request(address, asking(PULL, 0), PATIENT_MS)
            assert answer.body == b"small"

    run(scenario())


def test_a_connection_that_ends_inside_a_body(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        async def serve(peer: RawPeer) -> None:
            peer.send_bytes(frame_bytes((await peer.next()).reply(body=BODY))[:-1])
            await peer.writer.drain()

        async with raw_server(serve) as address, client() as caller:
            with pytest.raises(ConnectionLost):
                await caller.request(address, asking(PULL, 0), PATIENT_MS)

    run(scenario())


def test_a_request_that_expires_inside_its_body(run: Callable[[Any], None]) -> None:
    async def scenario() -> None:
        expired = asyncio.Event()

        async def serve(peer: RawPeer) -> None:
            data = frame_bytes((await peer.next()).reply(body=BODY))
            peer.send_bytes(data[:-100_000])
            await expired.wait()
            peer.send_bytes(data[-100_000:])
            peer.send((await peer.next()).reply(body=BODY[:200_000]))
            await peer.until_closed()

        async with raw_server(serve) as address, client() as caller:
            await caller.connect(address, PATIENT_MS)
            with pytest.raises(RequestTimeout):
                await caller.request(address, asking(PULL, 0), 50)
            expired.set()
            answer = await caller.request(address, asking(PULL, 0), PATIENT_MS)
            assert answer.body == BODY[:200_000]

    run(scenario())
