"""Noise over real sockets: only the connection that sends it suffers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from broker_core.codec.wire.remoting_command import RemotingCommand
from tests.codec.wire_frames import framed, mutated, sample_frames
from tests.remoting.peers import PATIENT_MS, client, raw_peer, serving, small_limits, until


def test_mutated_frames_over_sockets(
    run_async: Callable[..., Any], long_run: bool, summary_lines: list[str]
) -> None:
    total = 20_000 if long_run else 2_000
    rng = random.Random(20_240_602)
    frames = sample_frames()

    async def hostile(address: str) -> int:
        sent = 0
        async with raw_peer(address) as peer:
            for _ in range(rng.randrange(1, 20)):
                data = mutated(rng.choice(frames), rng)
                peer.send_bytes(framed(data) if rng.random() < 0.5 else data)
                sent += 1
            peer.writer.write_eof()
            await peer.until_closed()
        return sent

    async def scenario() -> None:
        sent = asked = 0
        async with (
            serving(limits=small_limits()) as (server, address),
            client() as good,
        ):
            while sent < total:
                peers = [asyncio.ensure_future(hostile(address)) for _ in range(20)]
                while not all(peer.done() for peer in peers):
                    command = RemotingCommand(1, {"n": str(asked)}, b"x" * (asked % 500))
                    answer = await good.request(address, command, PATIENT_MS)
                    assert (answer.code, answer.ext["n"]) == (0, str(asked))
                    asked += 1
                sent += sum(await asyncio.gather(*peers))
            await until(lambda: len(server.connections) == 1)
            assert (server.budget.size, server.budget.requests) == (0, 0)
            assert server.budget.connections == 1
        summary_lines.append(f"socket fuzz: {sent} bad frames, {asked} good requests meanwhile")

    run_async(scenario(), limit_s=600)
