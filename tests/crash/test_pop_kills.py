"""Brokers are killed while consumers pop: every message is consumed, also those in flight."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core import EmbeddedCluster
from broker_core.errors import RmqError
from broker_core.remoting.client import RemotingClient
from tests.broker.popping_client import Popped, PoppingClient
from tests.broker.running_broker import Asker
from tests.patient_client import patient_client
from tests.remoting.peers import until

pytestmark = pytest.mark.crash

Run = Callable[..., Any]
NODE = "broker-a:0"
QUEUES = 4
PROPERTIES = {"flushConsumerOffsetInterval": "200"}


def place(message: Popped) -> tuple[str, int, int]:
    handle = message.handle
    return handle.topic_type, handle.queue_id, handle.offset


class PopRun:
    """Producers and consumers that go on through everything, and what they have seen."""

    def __init__(self, cluster: EmbeddedCluster, client: RemotingClient, seed: int) -> None:
        self.cluster = cluster
        self.asker = Asker(SimpleNamespace(address=cluster.node(NODE).address), client)  # type: ignore[arg-type]
        self.rng = random.Random(seed)
        self.sent: set[bytes] = set()
        self.consumed: Counter[bytes] = Counter()
        self.number = 0
        self.is_over = False
        # Of this life of the broker: position of a message -> end of its invisible time.
        self.held: dict[tuple[str, int, int], float] = {}
        self.lives = 0
        self.twice: list[bytes] = []
        self.refused: list[str] = []

    async def produce(self) -> None:
        while not self.is_over:
            self.number += 1
            body = b"%d" % self.number
            text = f"UNIQ_KEY\x01{self.number:032X}\x02"
            try:
                answer = await self.asker.send("T", body, text, e=self.number % QUEUES)
            except RmqError:
                await self.pause(0.02)
                continue
            if answer.code == 0:
                self.sent.add(body)

    async def consume(self) -> None:
        client = PoppingClient(self.asker)
        while not self.is_over:
            life, asked_at = self.lives, asyncio.get_running_loop().time()
            try:
                for message in await client.pop(invisibleTime=1_500, pollTime=200):
                    self.note(message, life, asked_at + 1.5)
                    await self.use(client, message)
            except RmqError as error:
                if not error.retriable:
                    self.refused.append(str(error))
                await self.pause(0.02)

    def note(self, message: Popped, life: int, until_s: float) -> None:
        """While a broker runs, a message in flight is delivered to no second client."""
        if life != self.lives:
            return
        now = asyncio.get_running_loop().time()
        if self.held.get(place(message), 0.0) > now:
            self.twice.append(message.body)
        self.held[place(message)] = until_s

    async def use(self, client: PoppingClient, message: Popped) -> None:
        chance = self.rng.random()
        if chance < 0.7:
            if await client.ack(message) == 0:
                self.consumed[message.body] += 1
        elif chance < 0.8:
            self.held.pop(place(message), None)
            await client.change(message, 100)

    async def pause(self, seconds: float) -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await asyncio.wait((never,), timeout=seconds)

    def kill(self) -> None:
        self.cluster.kill(NODE)
        self.lives += 1
        self.held.clear()

    async def restart(self) -> None:
        await asyncio.to_thread(self.cluster.restart, NODE)


def test_nothing_is_lost(
    run_async: Run, tmp_path: Path, long_run: bool, summary_lines: list[str]
) -> None:
    rounds = 100 if long_run else 4

    async def scenario(run: PopRun) -> None:
        working = [asyncio.ensure_future(run.consume()) for _ in range(4)]
        producer = asyncio.ensure_future(run.produce())
        for _ in range(rounds):
            await run.pause(run.rng.uniform(0.3, 1.5))
            run.kill()
            await run.restart()
        before = len(run.sent)
        await until(lambda: len(run.sent) >= before + 50, 180)
        producer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await producer
        await until(lambda: run.sent <= run.consumed.keys(), 120)
        run.is_over = True
        await asyncio.gather(*working)
        assert run.twice == []
        assert run.refused == []

    async def whole() -> str:
        client = patient_client()
        with EmbeddedCluster(
            directory=tmp_path, topics={"T": QUEUES}, properties=PROPERTIES
        ) as cluster:
            run = PopRun(cluster, client, seed=5)
            try:
                await scenario(run)
            finally:
                await client.close()
        again = sum(count - 1 for count in run.consumed.values())
        return f"{len(run.sent)} sent, 0 lost, {again} acknowledged again, {rounds} kills"

    summary_lines.append(f"pops and kills: {run_async(whole(), limit_s=300 + 10 * rounds)}")


def test_what_was_acknowledged_below_the_stored_offset_never_comes_again(
    run_async: Run, tmp_path: Path
) -> None:
    async def scenario(cluster: EmbeddedCluster, client: RemotingClient) -> None:
        run = PopRun(cluster, client, seed=1)
        for number in range(60):
            text = f"UNIQ_KEY\x01{number:032X}\x02"
            assert (await run.asker.send("T", b"%d" % number, text, e=0)).code == 0
        consumer = PoppingClient(run.asker)
        first = await consumer.pop(maxMsgNums=32, queueId=0)
        kept = first[20]
        for message in first:
            if message is not kept:
                assert await consumer.ack(message) == 0

        def is_saved() -> bool:
            for table in tmp_path.rglob("consumerOffset.json"):
                offsets = json.loads(table.read_text())["offsetTable"]
                return bool(offsets.get("T@G", {}).get("0") == 20)
            return False

        await until(is_saved, 30)
        run.kill()
        await run.restart()
        again = await consumer.pop(maxMsgNums=32, queueId=0)
        # The holder of this one never answered; those behind it are at least once.
        assert [m.record.queue_offset for m in again] == list(range(20, 52))
        # A handle of the previous run: another client has the message now.
        assert await consumer.ack(kept) != 0
        for message in again:
            assert await consumer.ack(message) == 0
        rest = await consumer.drain(queueId=0)
        assert [m.record.queue_offset for m in rest] == list(range(52, 60))

    async def whole() -> None:
        client = patient_client()
        with EmbeddedCluster(
            directory=tmp_path, topics={"T": QUEUES}, properties=PROPERTIES
        ) as cluster:
            try:
                await scenario(cluster, client)
            finally:
                await client.close()

    run_async(whole(), limit_s=300)
