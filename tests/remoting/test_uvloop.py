"""The same connections on the other event loop, where it is installed."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.connection import Connection
from tests.remoting.peers import PATIENT_MS, client, raw_peer, serving, small_limits, until

uvloop: Any = pytest.importorskip("uvloop")


def run(coroutine: Any) -> None:
    loop = importlib.import_module("uvloop").new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(coroutine, 300))
    finally:
        loop.close()


def test_a_flood_garbage_and_requests_of_the_server() -> None:
    async def scenario() -> None:
        async def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            back = await connection.request(RemotingCommand(307, body=command.body[:5]), PATIENT_MS)
            assert back.body == command.body[:5]
            return command.reply(body=command.body)

        def answer_back(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            return command.reply(body=command.body)

        async with (
            serving(handler, small_limits()) as (server, address),
            client(limits=small_limits(), request_handler=answer_back) as caller,
            raw_peer(address) as bad,
        ):
            bad.send_bytes(b"\xff" * 100)
            answers = await asyncio.gather(
                *(
                    caller.request(address, RemotingCommand(1, body=bytes(50 << 10)), PATIENT_MS)
                    for _ in range(200)
                )
            )
            done = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
            assert done and all(len(answer.body) == 50 << 10 for answer in done)
            assert {answer.code for answer in answers} <= {0, ResponseCode.SYSTEM_BUSY}
            assert await bad.until_closed() == []
            await until(lambda: len(server.connections) == 1)
            assert (server.budget.requests, server.budget.size) == (0, 0)

    run(scenario())


def test_a_slow_reader() -> None:
    async def scenario() -> None:
        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            return command.reply(body=bytes(32 << 10))

        async with (
            serving(handler, small_limits()) as (server, address),
            raw_peer(address, limit=1 << 10) as peer,
        ):
            peer.send(*(RemotingCommand(11, opaque=n) for n in range(1_000)))
            await until(lambda: any(not c.is_writable for c in server.connections))
            assert [(await peer.next()).opaque for _ in range(1_000)] == list(range(1_000))

    run(scenario())


def test_a_connection_that_is_given_up_while_it_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made and its time limit ends in one turn of the loop, as after a pause."""

    async def scenario() -> None:
        async with serving() as (_, address), client() as caller:
            opened = RemotingClient.connection_opened

            def too_late(self: RemotingClient, connection: Connection) -> bool:
                opening = self._links[address].opening if self is caller else None
                if opening is not None:
                    opening.cancel()
                return opened(self, connection)

            with monkeypatch.context() as patch:
                patch.setattr(RemotingClient, "connection_opened", too_late)
                with pytest.raises((asyncio.CancelledError, ConnectionLost)):
                    await caller.connect(address, PATIENT_MS)
            # Or the end of the client would wait for it without a limit.
            await until(lambda: not caller._connections)
            assert caller.budget.connections == 0
            assert (await caller.request(address, RemotingCommand(1), PATIENT_MS)).code == 0

    run(scenario())
