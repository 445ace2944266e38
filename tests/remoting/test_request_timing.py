"""Times of requests: answered at once, later or by a task; slow ones are logged, bodies never."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_timing import CODES_MAX, OTHER_CODE, RequestTiming
from broker_core.remoting.server import RemotingServer
from tests.fakes.manual_clock import ManualClock
from tests.remoting.peers import client, small_limits, until

TIMEOUT_MS = 120_000


class Scripted:
    """Answers each code in its own way and moves the clock meanwhile."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.held: list[tuple[Connection, RemotingCommand]] = []

    def __call__(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        if command.code == 1:
            self._clock.advance(20)
            return command.reply()
        if command.code in (2, 11, 200_050):
            self.held.append((connection, command))
            return None
        if command.code == 3:
            return self._later(command)
        self._clock.advance(200)
        raise InvalidArgument("refused")

    async def _later(self, command: RemotingCommand) -> RemotingCommand:
        self._clock.advance(2_000)
        await asyncio.sleep(0)
        return command.reply()

    def answer(self, after_ms: float) -> None:
        self._clock.advance(after_ms)
        for connection, command in self.held:
            connection.send(command.reply())
        self.held.clear()


def test_every_kind_of_answer_stops_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = ManualClock()

    async def scenario() -> RequestTiming:
        scripted = Scripted(clock)
        timing = RequestTiming(scripted, clock, slow_ms=100)
        server = RemotingServer(timing, small_limits(), new_load=timing.new_load)
        port = await server.start("127.0.0.1", 0)
        address = f"127.0.0.1:{port}"
        async with client() as one:

            async def ask(code: int, **ext: str) -> RemotingCommand:
                command = RemotingCommand(code, {"secret": "canary", **ext}, b"canary")
                return await one.request(address, command, TIMEOUT_MS)

            for code in (1, 3, 4):
                await ask(code)
            waiting = asyncio.ensure_future(ask(2))
            await until(lambda: scripted.held)
            scripted.answer(50)
            await waiting
            # A pull that may be held for half a minute is not slow after twenty seconds.
            for held_ms in (20_000, 40_000):
                waiting = asyncio.ensure_future(ask(11, suspendTimeoutMillis="30000"))
                await until(lambda: scripted.held)
                scripted.answer(held_ms)
                await waiting
            waiting = asyncio.ensure_future(ask(200_050, pollTime="30000"))
            await until(lambda: scripted.held)
            scripted.answer(20_000)
            await waiting
            await one.oneway(address, RemotingCommand(1, {}))
            await ask(1)
        await server.stop(100)
        return timing

    timing = asyncio.run(scenario())
    counts = {code: sum(found.buckets) for code, found in timing.latencies.items()}
    assert counts == {1: 2, 2: 1, 3: 1, 4: 1, 11: 2, 200_050: 1}
    sums = {code: round(found.sum_ms) for code, found in timing.latencies.items()}
    assert (sums[1], sums[2], sums[4]) == (40, 50, 200)
    assert sums[3] >= 2_000
    assert timing.slow_count == 3
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" of ")[0] for line in lines] == [
        "slow request: code 3",
        "slow request: code 4",
        "slow request: code 11",
    ]
    assert "canary" not in caplog.text


def test_codes_that_peers_invent_share_one_entry() -> None:
    clock: Any = ManualClock()
    timing = RequestTiming(lambda _connection, command: command.reply(), clock)
    connection: Any = None
    for code in range(2 * CODES_MAX):
        timing.ended(clock.monotonic(), code, connection, None)
    assert len(timing.latencies) == CODES_MAX + 1
    assert sum(timing.latencies[OTHER_CODE].buckets) == CODES_MAX


def test_a_connection_that_goes_leaves_nothing_behind() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        scripted = Scripted(clock)
        timing = RequestTiming(scripted, clock)
        server = RemotingServer(timing, small_limits(), new_load=timing.new_load)
        port = await server.start("127.0.0.1", 0)
        async with client() as one:
            connection = await one.connect(f"127.0.0.1:{port}", TIMEOUT_MS)
            asked = connection.begin_request(RemotingCommand(2, {}), TIMEOUT_MS)
            await until(lambda: scripted.held)
            asked.cancel()
        await until(lambda: not server.connections)
        held: Any = scripted.held[0][0].load
        assert not held.begun
        scripted.answer(1)
        assert server.budget.requests == 0
        assert not timing.latencies
        await server.stop(100)

    asyncio.run(scenario())
