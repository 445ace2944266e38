"""Held requests have their own limits: they use no request slots, and no peer can use all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.codec.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from broker_core.config import RemotingLimits
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.limits.request_budget import RequestBudget
from tests.access.access_files import ACCOUNTS, READER, signer, write_access_file
from tests.broker.protected_cluster import cluster, make_topic
from tests.broker.running_broker import TIMEOUT_MS, Asker, broker_config, running, until
from tests.patient_client import patient_client
from tests.remoting.peers import RawPeer, raw_peer

Run = Callable[..., Any]

SMALL = RemotingLimits(
    requests_max=700, connection_requests_max=100, held_requests_max=1_000, held_size_max=64 << 20
)
HELD_MS = 290_000


def poll(opaque: int, queue: int = 0, **more: str) -> RemotingCommand:
    """A pull of an empty queue with long polling."""
    ext = {
        "consumerGroup": "CG", "topic": "T", "queueId": str(queue), "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0",
        "suspendTimeoutMillis": str(HELD_MS), "subscription": "*", "subVersion": "0", **more,
    }  # fmt: skip
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext, opaque=opaque)


def pop(opaque: int, code: int = RequestCode.POP_MESSAGE, **more: str) -> RemotingCommand:
    ext = {
        "consumerGroup": "CG", "topic": "T", "queueId": "-1", "maxMsgNums": "1", "initMode": "0",
        "invisibleTime": "60000", "pollTime": str(HELD_MS), "bornTime": "1", **more,
    }  # fmt: skip
    return RemotingCommand(code, ext, opaque=opaque)


@contextlib.asynccontextmanager
async def served(path: Path, limits: RemotingLimits = SMALL) -> AsyncIterator[Asker]:
    async with running(broker_config(path), remoting_limits=limits) as asker:
        await asker.make_topic("T", queues=4)
        yield asker


def budget(broker: Broker) -> RequestBudget:
    assert broker._server is not None
    return broker._server.budget


async def holds(asker: Asker, count: int) -> None:
    features = asker.broker.features
    pulls, pops = features.pull.pending, features.pop.pending
    await until(lambda: len(pulls) + len(pops) == count)


async def refused(peer: RawPeer, count: int) -> None:
    for _ in range(count):
        answer = await peer.next()
        assert answer.code == ResponseCode.SYSTEM_BUSY, answer
        assert "held" in (answer.remark or "")


def test_held_pulls_leave_the_request_slots_alone(
    tmp_path: Path, run_async: Run, long_run: bool
) -> None:
    """Seven connections full of polls were enough to have every other request refused."""
    limits = RemotingLimits() if long_run else SMALL
    each = limits.connection_requests_max

    async def scenario() -> None:
        async with served(tmp_path, limits) as asker, contextlib.AsyncExitStack() as stack:
            address = asker.broker.address
            peers = [await stack.enter_async_context(raw_peer(address)) for _ in range(7)]
            for number, peer in enumerate(peers):
                for begin in range(0, each, 1_000):
                    polls = (poll(opaque) for opaque in range(begin, min(begin + 1_000, each)))
                    peer.send(*polls)
                await holds(asker, min((number + 1) * each, limits.held_requests_max))
            assert budget(asker.broker).requests == 0
            assert (await asker.send("Other")).code == 0
            assert (await asker.pull("Other")).code == 0
            # Those very connections are served, too.
            peers[0].send(
                RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
            )
            assert (await peers[0].next()).code == 0
            # Another peer may still wait.
            async with raw_peer(address) as late:
                late.send(poll(1, queue=1))
                await holds(asker, 7 * each + 1)
                assert (await asker.send("T", e=1)).code == 0
                assert (await late.next()).code == 0
            for peer in peers:
                peer.writer.close()
            await holds(asker, 0)
            assert budget(asker.broker).held.count == 0

    run_async(scenario(), limit_s=600)


def test_a_connection_may_hold_as_many_as_are_left_free(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        limits = RemotingLimits(held_requests_max=100)
        async with (
            served(tmp_path, limits) as asker,
            raw_peer(asker.broker.address) as greedy,
            raw_peer(asker.broker.address) as other,
        ):
            greedy.send(*map(poll, range(60)))
            await holds(asker, 50)
            await refused(greedy, 10)
            other.send(*map(poll, range(26)))
            await holds(asker, 75)
            await refused(other, 1)
            assert (await asker.send("T")).code == 0
            codes = [(await greedy.next()).code for _ in range(50)]
            assert set(codes) == {ResponseCode.SUCCESS}
            await holds(asker, 0)
            held = budget(asker.broker).held
            assert (held.count, held.size) == (0, 0)

    run_async(scenario())


def test_an_account_may_hold_as_many_as_are_left_free(tmp_path: Path, run_async: Run) -> None:
    """However many connections it has; another account finds room."""
    other = {**READER, "accessKey": "other-key", "secretKey": "canary-other-secret"}

    async def scenario() -> None:
        async with cluster(tmp_path, limits=RemotingLimits(held_requests_max=40)) as found:
            await make_topic(found)
            write_access_file(found.file, *ACCOUNTS, other)
            pending, address = found.broker.features.pull.pending, found.broker.address
            clients = [patient_client(sign_request=signer(READER)) for _ in range(10)]
            late = patient_client(sign_request=signer(other))
            asked = RemotingCommand(RequestCode.CAPABILITIES)
            while (await late.request(address, asked, TIMEOUT_MS)).code != 0:
                asked = RemotingCommand(RequestCode.CAPABILITIES)
            pulls = [
                asyncio.ensure_future(one.request(address, poll(0, consumerGroup="G"), TIMEOUT_MS))
                for one in clients
                for _ in range(4)
            ]
            await until(lambda: sum(pull.done() for pull in pulls) == 20)
            assert len(pending) == 20
            done = [pull.result() for pull in pulls if pull.done()]
            assert {answer.code for answer in done} == {ResponseCode.SYSTEM_BUSY}
            waits = asyncio.ensure_future(
                late.request(address, poll(0, consumerGroup="G"), TIMEOUT_MS)
            )
            await until(lambda: len(pending) == 21)
            for one in (*clients, late):
                await one.close()
            await asyncio.gather(*pulls, waits, return_exceptions=True)
            await until(lambda: len(pending) == 0)
            assert budget(found.broker).held.count == 0

    run_async(scenario())


def test_pops_and_notifications_count_and_are_refused_when_full(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        limits = RemotingLimits(held_requests_max=20)
        async with served(tmp_path, limits) as asker, raw_peer(asker.broker.address) as peer:
            peer.send(*map(pop, range(4)), *map(poll, range(4, 8)))
            peer.send(*(pop(opaque, RequestCode.NOTIFICATION) for opaque in range(8, 10)))
            await holds(asker, 10)
            assert budget(asker.broker).held.count == 10
            peer.send(pop(10))
            answer = await peer.next()
            assert (answer.opaque, answer.code) == (10, ResponseCode.POLLING_FULL)
            peer.send(pop(11, RequestCode.NOTIFICATION))
            answer = await peer.next()
            assert (answer.opaque, answer.ext["pollingFull"]) == (11, "true")
            peer.send(poll(12))
            await refused(peer, 1)

    run_async(scenario())


def test_their_bytes_are_counted(tmp_path: Path, run_async: Run) -> None:
    """Headers of 60 KB: what they hold is limited as well, and others go on working."""

    async def scenario() -> None:
        limits = RemotingLimits(held_size_max=32 << 20)
        async with served(tmp_path, limits) as asker, raw_peer(asker.broker.address) as peer:
            count = 400
            for opaque in range(count):
                peer.send(poll(opaque, ballast="x" * 60_000))
                await peer.writer.drain()
            held = budget(asker.broker).held
            codes = []
            while len(codes) + len(asker.broker.features.pull.pending) < count:
                codes.append((await peer.next()).code)
            assert set(codes) == {ResponseCode.SYSTEM_BUSY}
            # Half of all: as much as is left free, give or take the last one.
            assert 15 << 20 < held.size < 17 << 20
            assert len(asker.broker.features.pull.pending) == count - len(codes) == held.count
            assert budget(asker.broker).size < 1 << 20
            assert (await asker.send("Other")).code == 0

    run_async(scenario())


@pytest.mark.parametrize("make", [poll, pop], ids=["pull", "pop"])
def test_oneway_polls_are_not_held(tmp_path: Path, run_async: Run, make: Any) -> None:
    """They have no answer to wait for, and would be counted nowhere."""

    async def scenario() -> None:
        async with served(tmp_path) as asker, raw_peer(asker.broker.address) as peer:
            for opaque in range(50):
                command = make(opaque)
                command.flag |= ONEWAY_FLAG
                peer.send(command)
            peer.send(
                RemotingCommand(
                    RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, opaque=99
                )
            )
            assert (await peer.next()).opaque == 99
            await holds(asker, 0)
            assert budget(asker.broker).requests == 0

    run_async(scenario())


def test_a_broker_that_stops_answers_them(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with served(tmp_path) as asker:
                peer = await stack.enter_async_context(raw_peer(asker.broker.address))
                peer.send(*map(poll, range(20)), *map(pop, range(20, 40)))
                await holds(asker, 40)
            answers = await peer.until_closed()
            assert sorted(answer.opaque for answer in answers) == list(range(40))

    run_async(scenario())
