"""Results and errors of handlers become answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import BINARY_HEADER, RemotingCommand
from broker_core.errors import DiskFull, InvalidArgument, RemoteError, RmqError
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.connection import Connection
from tests.remoting.peers import raw_peer, serving, small_limits, until


def numbered(count: int, **options: Any) -> list[RemotingCommand]:
    return [
        RemotingCommand(10, {"n": str(number)}, b"body", opaque=number, **options)
        for number in range(count)
    ]


def test_handlers_that_wait(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        gate = asyncio.get_running_loop().create_future()

        async def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            if command.ext["n"] == "0":
                await gate
            return command.reply()

        async with serving(handler) as (server, address), raw_peer(address) as peer:
            peer.send(*numbered(3))
            assert [(await peer.next()).opaque for _ in range(2)] == [1, 2]
            gate.set_result(None)
            assert (await peer.next()).opaque == 0
            assert server.budget.requests == 0

    run_async(scenario())


def test_a_coroutine_may_leave_the_answer_for_later(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held = []

        async def handler(connection: Connection, command: RemotingCommand) -> None:
            held.append((connection, command))

        async with serving(handler) as (server, address), raw_peer(address) as peer:
            peer.send(*numbered(1))
            await until(lambda: held)
            connection, command = held[0]
            await asyncio.sleep(0)
            assert server.budget.requests == 1
            connection.send(command.reply())
            assert (await peer.next()).opaque == 0
            assert server.budget.requests == 0

    run_async(scenario())


def test_a_handler_may_send_the_answer_itself_at_once(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        def handler(connection: Connection, command: RemotingCommand) -> None:
            connection.send(command.reply())

        async with serving(handler) as (server, address), raw_peer(address) as peer:
            peer.send(*numbered(5))
            assert [(await peer.next()).opaque for _ in range(5)] == list(range(5))
            assert server.budget.requests == 0

    run_async(scenario())


def test_oneway_requests_are_never_answered(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        seen = []

        def handler(connection: Connection, command: RemotingCommand) -> Any:
            seen.append(command.ext["kind"])
            if command.ext["kind"] == "fails":
                raise RmqError("no")
            if command.ext["kind"] == "breaks":
                raise KeyError("no")
            if command.ext["kind"] == "waits":
                return wait(command)
            if command.ext["kind"] == "sends":
                connection.send(command.reply())
                return None
            return command.reply()

        async def wait(command: RemotingCommand) -> RemotingCommand:
            await asyncio.sleep(0)
            return command.reply()

        async with serving(handler) as (server, address), raw_peer(address) as peer:
            kinds = ["answers", "fails", "breaks", "waits", "sends"]
            peer.send(*(RemotingCommand(15, {"kind": kind}, flag=2) for kind in kinds))
            peer.send(RemotingCommand(10, {"kind": "last"}, opaque=99))
            assert (await peer.next()).opaque == 99
            assert seen == [*kinds, "last"]
            await until(lambda: server.budget.requests == 0)
            peer.writer.write_eof()
            assert await peer.until_closed() == []

    run_async(scenario())


def test_answers_have_the_form_of_the_request(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with serving() as (_, address), raw_peer(address) as peer:
            peer.send(*numbered(1, serialize_type=BINARY_HEADER), *numbered(1))
            assert [(await peer.next()).serialize_type for _ in range(2)] == [BINARY_HEADER, 0]

    run_async(scenario())


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (RemoteError.for_code(ResponseCode.TOPIC_NOT_EXIST, "no topic T"), 17, "no topic T"),
        (RemoteError(12345, "new"), 12345, "new"),
        (InvalidArgument("bad queue"), 29, "bad queue"),
        (DiskFull("full"), 14, "full"),
        (RmqError(), 1, "RmqError"),
        (RmqError("x" * 5_000), 1, "x" * 1024),
        (KeyError("the secret"), 1, "internal error (KeyError), see the server's log"),
        (RecursionError(), 1, "internal error (RecursionError), see the server's log"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("waits", [False, True])
def test_errors_become_answers(
    run_async: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: int,
    remark: str,
    waits: bool,
) -> None:
    async def scenario() -> None:
        def handler(connection: Connection, command: RemotingCommand) -> Any:
            if waits:
                return fail()
            raise error

        async def fail() -> None:
            raise error

        async with serving(handler) as (server, address), raw_peer(address) as peer:
            peer.send(*numbered(1))
            answer = await peer.next()
            assert (answer.code, answer.remark) == (code, remark)
            assert server.budget.requests == 0

    run_async(scenario())
    logged = [r for r in caplog.records if r.levelno == logging.ERROR and r.name != "asyncio"]
    assert len(logged) == (0 if isinstance(error, RmqError) else 1)


def test_handlers_that_return_nonsense(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with (
            serving(lambda connection, command: {"a": 1}) as (_, address),  # type: ignore[arg-type, return-value]
            raw_peer(address) as peer,
        ):
            peer.send(*numbered(1))
            answer = await peer.next()
            assert (answer.code, answer.opaque) == (1, 0)

    run_async(scenario())


def test_answers_that_cannot_be_written(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            if command.code == 1:
                return command.reply(body=bytes(65 << 10))
            return command.reply(ext={"queueId": 0})  # type: ignore[dict-item]

        async with (
            serving(handler, small_limits()) as (server, address),
            raw_peer(address) as peer,
        ):
            peer.send(RemotingCommand(1, opaque=1), RemotingCommand(2, opaque=2))
            for opaque in (1, 2):
                answer = await peer.next()
                assert (answer.opaque, answer.code) == (opaque, 1)
            assert server.budget.requests == 0

    run_async(scenario())


def test_too_many_requests_are_refused(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        held: list[RemotingCommand] = []

        def handler(connection: Connection, command: RemotingCommand) -> None:
            held.append(command)

        limits = small_limits(requests_max=5, connection_requests_max=3)
        async with (
            serving(handler, limits) as (_, address),
            raw_peer(address) as one,
            raw_peer(address) as other,
        ):
            one.send(*numbered(5))
            assert [(await one.next()).code for _ in range(2)] == [ResponseCode.SYSTEM_BUSY] * 2
            assert len(held) == 3
            other.send(*numbered(3))
            answer = await other.next()
            assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_BUSY, 2)
            # Nothing waits for this one, so no error is reported.
            one.send(RemotingCommand(15, flag=2), RemotingCommand(16, opaque=77))
            assert (await one.next()).opaque == 77

    run_async(scenario())
