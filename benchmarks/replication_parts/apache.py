"""Synchronous replication, ours and Apache's: Java producers, a master and a slave of each.

The pairs of both roles run at the same time and are loaded in turns, so that noise of the machine
affects all of them alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker_parts.produce import UNITS, Load, figures_of, kind_name, load_once
from benchmarks.broker_parts.servers import APACHE, LOAD_FLAGS, Side, kinds, unavailable
from benchmarks.measuring.results import ratio, row
from benchmarks.measuring.rounds import Figure, in_turns, ratio_of
from broker_core.client.connection.config import ClientConfig
from broker_core.client.produce.producer import Producer
from broker_core.errors import RmqError
from broker_core.runtime.clock import sleep
from tests.interop.java_client import JavaClient
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.server_processes import MEASURING_FLAGS, OURS, BrokerCluster

LOADS = (Load(64, 1024), Load(16, 100))
WARM_UP = Load(64, 100)
SYNC, LAZY = "SYNC_MASTER", "ASYNC_MASTER"
READY_S = 60.0

_numbers = itertools.count(1)


@contextlib.contextmanager
def _pair(root: Path, kind: str, role: str) -> Iterator[BrokerCluster]:
    """A master with its slave; the master is what the load is sent to."""
    home = root / f"{kind}-{role}-{next(_numbers)}"
    common = {"brokerIP2": "127.0.0.1", "flushDiskType": "ASYNC_FLUSH"}
    # Without this a master of 5.x waits for no slave.
    waits = {"inSyncReplicas": "2"} if role == "SYNC_MASTER" else {}
    if kind == OURS:
        common = {"flushDiskType": "ASYNC_FLUSH"}
    master = BrokerCluster(
        kind, home / "master", {**common, **waits, "brokerRole": role}, java_flags=MEASURING_FLAGS
    )
    with master:
        of_slave = {
            **common,
            "brokerRole": "SLAVE",
            "brokerId": "1",
            "namesrvAddr": master.name_server_address,
        }
        slave = BrokerCluster(kind, home / "slave", of_slave, java_flags=MEASURING_FLAGS)
        try:
            slave.broker.start()
            asyncio.run(_until_copied(master.name_server_address))
            yield master
        finally:
            slave.stop()


async def _until_copied(name_server: str) -> None:
    """Until a send is answered as safe; with an asynchronous master that is at once."""
    deadline = asyncio.get_running_loop().time() + READY_S
    async with Producer(ClientConfig((name_server,)), retries=0) as producer:
        while True:
            try:
                await producer.send("Ready", b"is the slave there?")
            except RmqError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise AssertionError(f"no slave within {READY_S} s: {error}") from error
                await sleep(0.2)
            else:
                return


@contextlib.contextmanager
def _sides(root: Path) -> Iterator[dict[str, Side]]:
    """Pairs of every kind and role, and one Java process that loads their masters."""
    with contextlib.ExitStack() as stack:
        java = stack.enter_context(JavaClient(APACHE, LOAD_FLAGS, quick_start=False))
        sides: dict[str, Side] = {}
        for kind, role in itertools.product(kinds(), (LAZY, SYNC)):
            cluster = stack.enter_context(_pair(root, kind, role))
            name = f"load-{next(_numbers)}"
            java.call(
                "producer.start", producer=name, group="benchmark_producer",
                ns=cluster.name_server_address, instance=name,
            )  # fmt: skip
            sides[_name(kind, role)] = Side(cluster, java, name)
        yield sides


def _name(kind: str, role: str) -> str:
    return f"{kind} {role}"


def _loaded(sides: dict[str, Side], load: Load, seconds: float, rounds: int) -> dict[str, Figure]:
    """Messages per second by kind and role, in turns."""
    topics = {name: side.new_topic() for name, side in sides.items()}
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in sides}

    def take(name: str, number: int) -> None:
        figures = load_once(sides[name], topics[name], load, seconds)
        if number >= 0:
            taken[name].append(figures)

    in_turns(list(sides), take, rounds)
    results = figures_of(taken)
    for field in ("rate", "p50_us", "p99_us"):
        for name, one in results.get(field, {}).items():
            kind, _, role = name.rpartition(" ")
            table = f"replication, Java producers, {field.removesuffix('_us')}"
            settings = f"{role}, ASYNC_FLUSH on both nodes, {load.text}"
            row(table, kind_name(kind), settings, UNITS[field], one)
    return results["rate"]


def run(root: Path, quick: bool) -> None:
    """SYNC_MASTER and ASYNC_MASTER of both: what it costs to wait for the slave."""
    reason = unavailable()
    if reason is not None:
        raise PeerUnavailable(reason)
    seconds, rounds = (4.0, 3) if quick else (10.0, 5)
    with _sides(root) as sides:
        # The compiler of the loading process and of the brokers needs thousands of sends first.
        for side in sides.values():
            load_once(side, side.new_topic(), WARM_UP, 2 * seconds)
        rates = {load.name: _loaded(sides, load, seconds, rounds) for load in LOADS}
    if OURS not in kinds():
        return
    for load, rate in rates.items():
        for kind, goal in ((APACHE, "none"), (OURS, ">=0.85")):
            name = "" if kind == OURS else "apache_"
            value = ratio_of(rate[_name(kind, SYNC)], rate[_name(kind, LAZY)])
            ratio(f"{name}replication_sync_vs_async_{load}", value, goal, "its ASYNC_MASTER")
        value = ratio_of(rate[_name(OURS, SYNC)], rate[_name(APACHE, SYNC)])
        ratio(f"replication_sync_vs_apache_{load}", value, ">=1.5", kind_name(APACHE))
