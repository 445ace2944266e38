"""How fast a slave follows a master that appends as fast as it can, and what a sync copy adds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from benchmarks.measure import column_batch, info, ratio, run_loop
from benchmarks.store_append import touch_memory
from broker_core import EmbeddedCluster
from broker_core.broker.broker import Broker
from broker_core.broker.broker_config import BrokerConfig
from broker_core.client.backoff import pause
from broker_core.client.client_config import ClientConfig
from broker_core.client.producer import Producer
from broker_core.codec.message_queue import MessageQueue
from broker_core.embedded.cluster_node import ClusterNode
from broker_core.runtime.clock import SystemClock
from tests.interop.loopback_ports import free_ports

BODY_SIZE = 1024
BATCH_ROWS = 4_000
GOAL_MB_PER_S = 300.0
ROUNDS = 3
MEGABYTE = 1_000_000

_ECHO = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
size = int(sys.argv[1])
while True:
    left = size
    while left:
        data = peer.recv(left)
        if not data:
            sys.exit()
        left -= len(data)
    peer.sendall(b"12345678")
"""


# Throughput


@contextlib.asynccontextmanager
async def _master(root: Path, name: str) -> AsyncIterator[Broker]:
    """A master in this process, so that nothing but the append is between it and the data."""
    port, ha_port = free_ports(2)
    properties = {
        "storePathRootDir": str(root / name),
        "listenPort": str(port),
        "haListenPort": str(ha_port),
        "vipPortEnable": "false",
        "osPageCacheBusyTimeOutMills": "60000",
    }
    config, _ = BrokerConfig.from_properties(properties)
    broker = Broker(config)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
        shutil.rmtree(root / name)


async def _append(broker: Broker, size: int) -> int:
    """Append so many bytes in batches; the end of the log."""
    store = broker.parts.store
    batch = column_batch(BATCH_ROWS, BODY_SIZE)
    end = store.log_range[1] + size
    while store.log_range[1] < end:
        store.append_batch(batch)
        await asyncio.sleep(0)  # lets the store dispatch and the link send
    return store.log_range[1]


async def _until_copied(broker: Broker, end: int) -> None:
    replicas = broker.parts.replication.replicas
    assert replicas is not None
    while not any(replica.position >= end for replica in replicas.replicas):
        await pause(0.002)


async def _until_alone(broker: Broker) -> None:
    replicas = broker.parts.replication.replicas
    assert replicas is not None
    while any(True for _ in replicas.replicas):
        await pause(0.002)


async def _append_rate(root: Path, size: int) -> float:
    """MB/s of a master without slaves, its queues built."""
    async with _master(root, "alone") as broker:
        await _append(broker, size // 4)
        rates = []
        for _ in range(ROUNDS):
            before = broker.parts.store.log_range[1]
            started = time.perf_counter()
            end = await _append(broker, size)
            rates.append((end - before) / (time.perf_counter() - started) / MEGABYTE)
    return statistics.median(rates)


async def _copy_rates(root: Path, size: int) -> tuple[float, float]:
    """MB/s from the first append to the slave's last report, and of a slave that comes late."""
    async with _master(root, "fed") as broker:
        with _slave(root, "follower", broker.config.ha_address):
            await _until_copied(broker, await _append(broker, size // 4))
            rates = []
            for _ in range(ROUNDS):
                before = broker.parts.store.log_range[1]
                started = time.perf_counter()
                end = await _append(broker, size)
                await _until_copied(broker, end)
                rates.append((end - before) / (time.perf_counter() - started) / MEGABYTE)
        await _until_alone(broker)
        with _slave(root, "late", broker.config.ha_address):
            started = time.perf_counter()
            await _until_copied(broker, broker.parts.store.log_range[1])
            spent = time.perf_counter() - started
            late = broker.parts.store.log_range[1] / spent / MEGABYTE
    return statistics.median(rates), late


@contextlib.contextmanager
def _slave(root: Path, name: str, master: str) -> Iterator[None]:
    port, ha_port = free_ports(2)
    node = ClusterNode(
        "broker-a:1",
        root / name,
        {
            "brokerRole": "SLAVE",
            "brokerId": "1",
            "haMasterAddress": master,
            "listenPort": str(port),
            "haListenPort": str(ha_port),
            "vipPortEnable": "false",
        },
    )
    node.begin()
    try:
        node.wait_ready(SystemClock(), 60)
        yield
    finally:
        node.stop()
        shutil.rmtree(root / name)


def run_async(root: Path, quick: bool) -> None:
    """Asynchronous replication."""
    size = (256 << 20) if quick else (1 << 30)
    touch_memory(root, 2 * size)
    alone = run_loop(_append_rate(root, size))
    copied, late = run_loop(_copy_rates(root, size))
    goal = min(GOAL_MB_PER_S, 0.8 * alone)
    info(f"append without slaves {alone:.0f} MB/s; followed {copied:.0f} MB/s, goal {goal:.0f}")
    info(f"a slave that comes late copies {late:.0f} MB/s, its start included")
    ratio("replication_async_throughput_vs_goal", copied / goal, ">=1")


# Latency


def _round_trip_us(size: int, rounds: int) -> float:
    """Median of sending `size` bytes to another process and getting 8 back."""
    with subprocess.Popen(
        [sys.executable, "-c", _ECHO, str(size)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        times = []
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            payload = bytes(size)
            for _ in range(rounds):
                started = time.perf_counter()
                link.sendall(payload)
                left = 8
                while left:
                    left -= len(link.recv(left))
                times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def _sync_us(root: Path, size: int, rounds: int) -> float:
    """Median of making `size` appended bytes durable in a file that has its size already."""
    path = root / "synced"
    payload = os.urandom(size)
    with path.open("wb", buffering=0) as file:
        file.truncate(64 << 20)
        os.fsync(file.fileno())
        times = []
        for _ in range(rounds):
            file.write(payload)
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    path.unlink()
    return statistics.median(times) * 1e6


async def _send_us(name_server: str, rounds: int) -> float:
    """Median of one send after the other."""
    body = bytes(BODY_SIZE)
    queue = MessageQueue("Latency", "broker-a", 0)
    times = []
    async with Producer(ClientConfig((name_server,)), coalesce=False) as producer:
        for number in range(rounds + rounds // 10):
            started = time.perf_counter()
            await producer.send("Latency", body, queue=queue)
            if number >= rounds // 10:
                times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def run_sync(root: Path, quick: bool) -> None:
    """What a send waits longer for when a slave has to have it, synced there."""
    rounds = 400 if quick else 3_000
    wire, disk = _round_trip_us(BODY_SIZE, rounds), _sync_us(root, BODY_SIZE, rounds // 4)
    taken: dict[str, list[float]] = {"async": [], "sync": []}
    with contextlib.ExitStack() as stack:
        clusters = {}
        for kind in taken:
            cluster = EmbeddedCluster(
                slaves_per_master=1, replication=kind, directory=root / kind, topics={"Latency": 1}
            )
            clusters[kind] = stack.enter_context(cluster)
            # The master answers from memory in both, so that the copy alone makes the difference.
            slave = cluster.node("broker-a:1")
            slave.set_properties(flushDiskType="SYNC_FLUSH")
            cluster.restart(slave)
            cluster.wait_in_sync()
        for _ in range(ROUNDS):
            for kind, cluster in clusters.items():
                taken[kind].append(run_loop(_send_us(cluster.name_server, rounds)))
    medians = {kind: statistics.median(times) for kind, times in taken.items()}
    added = medians["sync"] - medians["async"]
    info(
        f"send {medians['async']:.0f} us, with a synced copy {medians['sync']:.0f} us; loopback "
        f"round trip {wire:.0f} us, sync {disk:.0f} us"
    )
    ratio("replication_sync_added_latency_vs_round_trip_and_sync", added / (wire + disk), "<=1.3")
