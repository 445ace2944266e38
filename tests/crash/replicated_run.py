"""A master and its slave as processes under load, and what may be said about them afterwards.

`ReplicatedRun` sends numbered messages all the time. A message counts as promised when the answer
was SEND_OK: with synchronous replication the slave has it, even if the master is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from broker_core import EmbeddedCluster
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.result import SendStatus
from broker_core.client.pull.consumer import PullConsumer
from broker_core.codec.json.dialect import parse_json
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.embedded.cluster_node import ClusterNode
from broker_core.errors import RmqError
from broker_core.protocol_codes import RequestCode
from tests.patient_client import patient_client

TOPIC = "Promised"
QUEUES = 4
FILE_SIZE = 1 << 20
# I16: after healing everything works again by itself. The limit is for what never does; a busy
# machine may take its time.
HEAL_S = 180.0
SMALL = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "slaveTimeout": "1000",
    "haSendHeartbeatInterval": "500",
    "haHousekeepingInterval": "2000",
}


class ReplicatedRun:
    """`master` and `slave` are nodes of `cluster`; `acked` and `sent` grow by themselves."""

    def __init__(self, cluster: EmbeddedCluster, timeout_ms: int = 2_000) -> None:
        self.cluster = cluster
        self.master = cluster.node("broker-a:0")
        self.slave = cluster.node("broker-a:1")
        self.sent = 0
        self.acked: set[bytes] = set()
        self.outcomes: Counter[str] = Counter()
        self._timeout_ms = timeout_ms
        self._client = patient_client()
        self._load: asyncio.Task[None] | None = None
        self._never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # The load

    def start_load(self, senders: int = 4) -> None:
        self._load = asyncio.ensure_future(self._send_all(senders))

    async def stop_load(self) -> None:
        if self._load is not None:
            self._load.cancel()
            await asyncio.wait((self._load,))
            self._load = None

    async def close(self) -> None:
        await self.stop_load()
        await self._client.close()

    async def _send_all(self, senders: int) -> None:
        config = ClientConfig((self.cluster.name_server,), route_poll_interval_ms=300)
        async with Producer(config, retries=0, timeout_ms=self._timeout_ms) as producer:
            tasks = [asyncio.ensure_future(self._send(producer)) for _ in range(senders)]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, producer: Producer) -> None:
        while True:
            body = b"%08d-" % self.sent + b"x" * (self.sent * 37 % 700)
            self.sent += 1
            try:
                result = await producer.send(TOPIC, body)
            except RmqError as error:
                self.outcomes[type(error).__name__] += 1
                await self.pause(0.05)
                continue
            self.outcomes[result.status.name] += 1
            if result.status is SendStatus.SEND_OK:
                self.acked.add(body)

    # Waiting

    async def pause(self, seconds: float) -> None:
        """Let everything run for a while: the length of a fault, not a wait for something."""
        await asyncio.wait((self._never,), timeout=seconds)

    async def until(
        self, reached: Callable[[], Awaitable[bool]], what: str, limit_s: float = HEAL_S
    ) -> None:
        deadline = asyncio.get_running_loop().time() + limit_s
        while not await reached():
            await self.pause(0.05)
            in_time = asyncio.get_running_loop().time() < deadline
            assert in_time, f"not within {limit_s} s: {what}\n{self.logs()}"

    async def until_acked(self, count: int) -> None:
        """Add to the number of messages that will be sent."""
        wanted = len(self.acked) + count

        async def is_reached() -> bool:
            return len(self.acked) >= wanted

        await self.until(is_reached, f"{count} more acknowledged")

    async def until_same(self) -> None:
        """The slave has all that the master has."""

        async def is_same() -> bool:
            try:
                ours, theirs = [await self.log_range(n) for n in (self.slave, self.master)]
            except RmqError:
                return False
            return ours[1] == theirs[1]

        await self.until(is_same, "the same end of both logs")

    def logs(self) -> str:
        """What the processes said last."""
        return "\n".join(
            f"{node.name}: {node.log_path.read_text()[-2_000:]}"
            for node in self.cluster.nodes
            if node.log_path.exists()
        )

    # Looking

    async def log_range(self, node: ClusterNode, timeout_ms: int = 2_000) -> tuple[int, int]:
        """Who asks again and again gives a member that may be dead little time."""
        command = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
        answer = await self._client.request(node.address, command, timeout_ms)
        table = parse_json(bytes(answer.body))["table"]
        return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])

    async def roles(self) -> dict[str, str]:
        """What the members say they are; those that do not answer are left out."""
        found = {}
        for node in self.cluster.nodes:
            try:
                command = RemotingCommand(RequestCode.REPLICATION_STATUS)
                answer = await self._client.request(node.address, command, 1_000)
                found[node.name] = parse_json(bytes(answer.body))["role"]
            except RmqError:
                continue
        return found

    async def check_same_bytes(self) -> int:
        """Compare the common range of both logs; its size. Both must be running and idle."""
        ranges = [await self.log_range(node, 120_000) for node in (self.master, self.slave)]
        start, end = max(low for low, _ in ranges), min(high for _, high in ranges)
        at = start
        while at < end:
            size = min(FILE_SIZE - at % FILE_SIZE, end - at)
            ours, theirs = [_bytes_at(n.store_dir, at, size) for n in (self.slave, self.master)]
            assert ours == theirs, f"the logs differ between {at} and {at + size}"
            at += size
        return end - start

    async def bodies_at(self, node: ClusterNode) -> set[bytes]:
        """Every message that this member hands out."""
        rewrite = {other.address: node.address for other in self.cluster.nodes}
        config = ClientConfig((self.cluster.name_server,), address_rewrite=rewrite)
        found: set[bytes] = set()
        async with ClientInstance(config) as client:
            consumer = PullConsumer(client, "LOOKING")
            for queue in await consumer.queues(TOPIC):
                low = await consumer.min_offset(queue)
                high = await consumer.max_offset(queue)
                async with consumer.stream(queue, low, high) as stream:
                    found.update([message.body async for message in stream.messages()])
        return found

    async def check_promises(self, node: ClusterNode) -> int:
        """Nothing that was promised is missing there; how much was promised."""
        promised = set(self.acked)
        missing = promised - await self.bodies_at(node)
        assert not missing, (
            f"{len(missing)} of {len(promised)} acknowledged messages are not at {node.name}: "
            f"{sorted(missing)[:3]}\n{self.logs()}"
        )
        return len(promised)


def _bytes_at(store: Path, position: int, size: int) -> bytes:
    base = position - position % FILE_SIZE
    with (store / "commitlog" / f"{base:020d}").open("rb") as file:
        file.seek(position - base)
        return file.read(size)


@contextlib.asynccontextmanager
async def replicated_run(
    home: Path, timeout_ms: int = 2_000, **properties: str
) -> AsyncIterator[ReplicatedRun]:
    """Synchronous replication, both members started, the load running.

    A sender waits for `timeout_ms`: briefly, so that it sends on while a member is gone or stopped.
    """
    cluster = EmbeddedCluster(
        slaves_per_master=1, replication="sync", directory=home, topics={TOPIC: QUEUES},
        properties={**SMALL, **properties},
    )  # fmt: skip
    await asyncio.to_thread(cluster.start)
    run = ReplicatedRun(cluster, timeout_ms)
    try:
        run.start_load()
        await run.until_acked(20)
        yield run
    finally:
        await run.close()
        await asyncio.to_thread(cluster.stop)
