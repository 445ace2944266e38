"""How fast a slave follows a master that appends as fast as it can."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from benchmarks.measuring.measure import column_batch, run_loop, touch_memory
from benchmarks.measuring.results import ratio, row
from benchmarks.measuring.rounds import compare
from broker_core.broker.broker import Broker
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.embedded.cluster_node import ClusterNode
from broker_core.runtime.clock import SystemClock, sleep
from tests.interop.loopback_ports import free_ports

BODY_SIZE = 1024
BATCH_ROWS = 4_000
GOAL_MB_PER_S = 300.0
ROUNDS = 3
MEGABYTE = 1_000_000


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
    """Append `size` bytes in batches; returns the end of the log."""
    store = broker.context.store
    batch = column_batch(BATCH_ROWS, BODY_SIZE)
    end = store.log_range[1] + size
    while store.log_range[1] < end:
        store.append_batch(batch)
        await asyncio.sleep(0)  # lets the store dispatch and the link send
    return store.log_range[1]


async def _until_copied(broker: Broker, end: int) -> None:
    replicas = broker.role.replicas
    assert replicas is not None
    while not any(replica.position >= end for replica in replicas.replicas):
        await sleep(0.002)


async def _append_rate(root: Path, size: int) -> float:
    """MB/s of a master without slaves, its queues built."""
    async with _master(root, "alone") as broker:
        await _append(broker, size // 4)
        before = broker.context.store.log_range[1]
        started = time.perf_counter()
        end = await _append(broker, size)
        return (end - before) / (time.perf_counter() - started) / MEGABYTE


async def _copy_rate(root: Path, size: int) -> float:
    """MB/s from the first append to the slave's last report."""
    async with _master(root, "fed") as broker:
        with _slave(root, "follower", broker.config.ha_address):
            await _until_copied(broker, await _append(broker, size // 4))
            before = broker.context.store.log_range[1]
            started = time.perf_counter()
            end = await _append(broker, size)
            await _until_copied(broker, end)
            return (end - before) / (time.perf_counter() - started) / MEGABYTE


async def _late_rate(root: Path, size: int) -> float:
    """MB/s of a slave that starts late, its start included."""
    async with _master(root, "fed") as broker:
        await _append(broker, size)
        with _slave(root, "late", broker.config.ha_address):
            started = time.perf_counter()
            await _until_copied(broker, broker.context.store.log_range[1])
            return broker.context.store.log_range[1] / (time.perf_counter() - started) / MEGABYTE


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
    takes = {"without slaves": _append_rate, "followed": _copy_rate, "late slave": _late_rate}

    def take(name: str) -> float:
        touch_memory(root, 3 * size)
        return float(run_loop(takes[name](root, size)))

    found = compare(list(takes), take, ROUNDS)
    for name, one in found.items():
        settings = f"ASYNC_MASTER, SYNC_FLUSH, appends of {BATCH_ROWS} rows of 1 KiB"
        row("replication, appends", name, settings, "MB/s", one)
    goal = min(GOAL_MB_PER_S, 0.8 * found["without slaves"].median)
    ratio("replication_async_throughput_vs_goal", found["followed"].median / goal, ">=1")
