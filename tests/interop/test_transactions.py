"""Transactions with real peers: Java producers on our broker, our producer on Apache's.

And one directory that goes from our broker to Apache's and back with open transactions in it: each
broker asks about those that are open, and about no other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.transactions.producer import TransactionProducer, TransactionState
from broker_core.errors import RmqError
from broker_core.nameserver.name_server import NameServer
from tests.interop.clusters import (
    KINDS,
    OURS,
    ApacheBroker,
    Cluster,
    OurBroker,
    cluster,
    run_or_skip,
)
from tests.interop.consumer_ground import patient_config, until
from tests.interop.java_broker import SERVER_VERSIONS
from tests.interop.java_client import CLIENT_VERSIONS
from tests.interop.java_transaction_producer import JavaTransactionProducer
from tests.interop.peer_releases import releases
from tests.patient_client import patient_client

pytestmark = pytest.mark.interop

Run = Callable[..., Any]

COMMIT, ROLLBACK, UNKNOWN = TransactionState
# The times of real brokers, shortened.
QUICK = {
    # A half is checked when its end has not come by then: a busy producer needs a while for it.
    # 5.x notes an end some time after it: a half that is checked before that ends twice.
    "transactionTimeOut": "5000",
    "transactionCheckInterval": "1000",
    # Apache counts its checks also when no producer is online.
    "transactionCheckMax": "500",
    "transactionOpBatchInterval": "300",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
GROUP = "TransactionGroup"
STOP_TIMEOUT_S = 60


@contextlib.asynccontextmanager
async def reader(name_server: str) -> AsyncIterator[PullConsumer]:
    async with ClientInstance(patient_config(name_server, client_id="reader")) as client:
        yield PullConsumer(client, "ReaderGroup")


async def bodies(consumer: PullConsumer, topic: str) -> list[str]:
    """Everything that consumers of a topic can get."""
    found: list[str] = []
    try:
        for queue in await consumer.queues(topic):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset)
                found += [message.body.decode() for message in result.messages]
                offset = max(result.next_offset, offset + 1)
    except RmqError:
        # The topic is not known yet, or its broker is on its way down or up.
        return []
    return sorted(found)


async def until_bodies(consumer: PullConsumer, topic: str, wanted: list[str]) -> None:
    found: list[str] = []
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for _ in range(600):
        found = await bodies(consumer, topic)
        if found == sorted(wanted):
            return
        await asyncio.wait((never,), timeout=0.1)
    raise AssertionError(f"{found}, not {sorted(wanted)}")


@pytest.mark.parametrize("version", releases(CLIENT_VERSIONS))
def test_a_java_producer_on_our_broker(version: str, tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with cluster(OURS, tmp_path, properties=QUICK) as found:
            java = JavaTransactionProducer(version, tmp_path / "java", found.name_server, GROUP)
            try:
                await java.start()
                await _commit_and_check(java, found)
                await _survive_a_kill(java, found)
            finally:
                await java.kill()

    run_or_skip(run_async, scenario())


async def _commit_and_check(java: JavaTransactionProducer, found: Cluster) -> None:
    names = ["commit-1", "rollback-2", "unknown-commit-3", "unknown-rollback-4", "commit-5"]
    names.append("unknown-unknown-commit-6")
    rows = await java.send("T", *names)
    for row, name in zip(rows, names, strict=True):
        _, body, status, _, message_id, transaction_id = row
        assert (body, status, transaction_id) == (name, "SEND_OK", message_id)
    async with reader(found.name_server) as consumer:
        wanted = ["commit-1", "commit-5", "unknown-commit-3", "unknown-unknown-commit-6"]
        await until_bodies(consumer, "T", wanted)
    checks = java.of("checked", "unknown-unknown-commit-6")
    ids = {row[1]: row[4] for row in rows}
    # The second answer commits; one that is late is asked for again.
    assert len(checks) >= 2
    assert [row[3:] for row in checks] == [
        [ids["unknown-unknown-commit-6"], "T", str(number)] for number in range(1, len(checks) + 1)
    ]
    await java.wait_for("checked", 1, "unknown-rollback-4")
    assert not java.of("checked", "commit-1") and not java.of("checked", "rollback-2")


async def _survive_a_kill(java: JavaTransactionProducer, found: Cluster) -> None:
    """Committed ones stay, open ones are asked about, nothing comes twice."""
    await java.send("U", *(f"commit-{n}" for n in range(50)))
    await java.send("U", "unknown-never-never-commit-50", "rollback-51")
    await found.kill()
    await found.restart()
    wanted = [f"commit-{n}" for n in range(50)]
    async with reader(found.name_server) as consumer:
        # END_TRANSACTION is a oneway: one that the kill took is asked about, too.
        await until_bodies(consumer, "U", [*wanted, "unknown-never-never-commit-50"])
        assert len(await bodies(consumer, "T")) == 4
    assert not [row for row in java.of("checked") if row[1].startswith("commit")]


class Listener:
    """Answers by the words of the body, and remembers."""

    def __init__(self) -> None:
        self.checked: list[str] = []

    async def execute(self, message: OutgoingMessage, argument: Any) -> TransactionState:
        return self._state(message.body.decode(), 0)

    async def check(self, message: ReceivedMessage) -> TransactionState:
        body = message.body.decode()
        self.checked.append(body)
        return self._state(body, self.checked.count(body))

    def _state(self, body: str, number: int) -> TransactionState:
        words = [*body.split("-"), *[""] * number]
        return {"commit": COMMIT, "rollback": ROLLBACK}.get(words[number], UNKNOWN)


@contextlib.asynccontextmanager
async def producing(name_server: str, listener: Listener) -> AsyncIterator[Callable[..., Any]]:
    config = patient_config(name_server, heartbeat_interval_ms=500, route_poll_interval_ms=500)
    async with TransactionProducer(
        config, GROUP, execute=listener.execute, check=listener.check
    ) as producer:
        assert isinstance(producer, TransactionProducer)

        async def send(topic: str, *names: str) -> list[Any]:
            return [
                await producer.send_in_transaction(OutgoingMessage(topic, name.encode()))
                for name in names
            ]

        yield send


@pytest.mark.parametrize("kind", KINDS)
def test_our_producer_on_every_broker(kind: str, tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        listener = Listener()
        async with (
            cluster(kind, tmp_path, properties=QUICK) as found,
            producing(found.name_server, listener) as send,
            reader(found.name_server) as consumer,
        ):
            results = await send(
                "T", "commit-1", "rollback-2", "unknown-commit-3", "unknown-rollback-4"
            )
            assert [(r.state, r.is_confirmed) for r in results] == [
                (COMMIT, True), (ROLLBACK, True), (UNKNOWN, False), (UNKNOWN, False),
            ]  # fmt: skip
            await until_bodies(consumer, "T", ["commit-1", "unknown-commit-3"])
            await until(lambda: "unknown-rollback-4" in listener.checked)
        assert not {"commit-1", "rollback-2"} & set(listener.checked)

    run_or_skip(run_async, scenario())


# One directory, both brokers


@contextlib.asynccontextmanager
async def _served(broker: Any, name_server: str) -> AsyncIterator[None]:
    """A broker from its start until it was asked to end and has."""
    client = patient_client()
    found = Cluster(name_server, [broker], client)
    try:
        await broker.start()
        await found.until(lambda: found._is_routed(0))
        yield
        process: Any = getattr(broker, "_java", broker)
        process = getattr(process, "process", None) or process._process
        process.terminate()
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        await found.until(lambda: found._is_routed(0), is_so=False)
    finally:
        await broker.kill()
        await client.close()


@pytest.mark.parametrize("version", releases(SERVER_VERSIONS))
def test_there_and_back(version: str, tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        server = NameServer()
        address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        try:
            await _there_and_back(version, tmp_path, address)
        finally:
            await server.stop(50)

    run_or_skip(run_async, scenario())


async def _there_and_back(version: str, home: Path, address: str) -> None:
    patient = QUICK | {"transactionTimeOut": "60000"}
    wanted = ["commit-1", "commit-2"]
    ours = OurBroker(home, address, "broker-a", patient)
    listener = Listener()
    async with _served(ours, address), producing(address, listener) as send:
        # The open one comes first, so that Apache has to read all of our op records.
        await send("T", "unknown-commit-0", *wanted, "rollback-3", "unknown-commit-4")
    assert listener.checked == []

    apache = ApacheBroker(version, home, address, "broker-a", QUICK)
    async with _served(apache, address), producing(address, listener) as send:
        wanted += ["commit-6", "unknown-commit-0", "unknown-commit-4"]
        await send("T", "commit-6", "unknown-unknown-unknown-unknown-unknown-unknown-never")
        async with reader(address) as consumer:
            await until_bodies(consumer, "T", wanted)
            await until(lambda: len(listener.checked) >= 4)
    checked = set(listener.checked)
    never = "unknown-unknown-unknown-unknown-unknown-unknown-never"
    assert checked == {"unknown-commit-0", "unknown-commit-4", never}

    back = OurBroker(home, address, "broker-a", QUICK)
    later = Listener()
    async with _served(back, address), producing(address, later) as send:
        await send("T", "commit-7")
        async with reader(address) as consumer:
            await until_bodies(consumer, "T", [*wanted, "commit-7"])
            await until(lambda: len(later.checked) >= 2)
            assert set(later.checked) == {never}
            assert await bodies(consumer, "T") == sorted([*wanted, "commit-7"])
