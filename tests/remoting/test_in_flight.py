"""Requests that wait for an answer: ids, timeouts, ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost, RequestTimeout
from broker_core.remoting.in_flight import InFlightRequests


def table() -> InFlightRequests:
    return InFlightRequests(asyncio.get_running_loop())


def test_ids_begin_at_one_and_skip_those_in_use(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        requests = table()
        commands = [RemotingCommand(1) for _ in range(3)]
        for command in commands:
            requests.begin(command, 60_000, "peer")
        assert [command.opaque for command in commands] == [1, 2, 3]
        requests._next_opaque = (1 << 31) - 1
        more = [RemotingCommand(1) for _ in range(3)]
        for command in more:
            requests.begin(command, 60_000, "peer")
        assert [command.opaque for command in more] == [(1 << 31) - 1, 4, 5]
        requests.fail_all("over")

    run_async(scenario())


def test_answers_come_in_any_order(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        requests = table()
        commands = [RemotingCommand(1) for _ in range(3)]
        answers = [requests.begin(command, 60_000, "peer") for command in commands]
        for command in reversed(commands):
            assert requests.complete(command.reply(body=str(command.opaque).encode()))
        assert [(await answer).body for answer in answers] == [b"1", b"2", b"3"]
        assert len(requests) == 0

    run_async(scenario())


def test_answers_without_a_waiter(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        requests = table()
        command = RemotingCommand(1)
        answer = requests.begin(command, 60_000, "peer")
        assert not requests.complete(RemotingCommand(0, opaque=77, flag=1))
        answer.cancel()
        # Its id stays taken until the answer or the timeout.
        assert len(requests) == 1
        assert not requests.complete(command.reply())
        assert not requests.complete(command.reply())
        assert len(requests) == 0

    run_async(scenario())


def test_timeouts(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        requests = table()
        answer = requests.begin(RemotingCommand(105), 5, "10.0.0.1:9876")
        other = requests.begin(RemotingCommand(105), 60_000, "10.0.0.1:9876")
        with pytest.raises(
            RequestTimeout, match=r"request 105 to 10\.0\.0\.1:9876 .* 5 ms"
        ) as seen:
            await answer
        assert seen.value.retriable
        assert not other.done()
        requests.fail_all("over")

    run_async(scenario())


def test_the_end_of_the_connection_fails_all(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        requests = table()
        answers = [requests.begin(RemotingCommand(1), 60_000, "peer") for _ in range(3)]
        answers[1].cancel()
        requests.fail_all("peer: closed")
        for answer in (answers[0], answers[2]):
            with pytest.raises(ConnectionLost, match="peer: closed"):
                await answer
        assert len(requests) == 0

    run_async(scenario())
