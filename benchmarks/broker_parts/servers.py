"""The brokers under measurement and what their processes cost: one of Apache's beside ours.

Shares the process starters with `tests/interop`. Both brokers run at the same time and the load
goes to one of them at a time, in turns, so that a noisy moment hits both alike.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.java_client import JavaClient
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.server_processes import (
    BROKER_NAME,
    MEASURING_FLAGS,
    OURS,
    BrokerCluster,
    has_route,
    our_broker_is_built,
    wait_until,
)

APACHE = "5.5.0"
QUEUES = 4
ROUTE_TIMEOUT_S = 30.0
LOAD_FLAGS = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_numbers = itertools.count(1)


class Side(NamedTuple):
    """One broker with a started Java producer of its own."""

    cluster: BrokerCluster
    java: JavaClient
    producer: str

    @property
    def kind(self) -> str:
        return self.cluster.kind

    def call(self, op: str, **arguments: Any) -> Any:
        return self.java.call(op, producer=self.producer, broker=BROKER_NAME, **arguments)

    def new_topic(self, queues: int = QUEUES) -> str:
        topic = f"Bench-{next(_numbers)}"
        self.call("admin.create_topic", key=BROKER_NAME, topic=topic, queues=queues)
        address = self.cluster.name_server_address
        wait_until(lambda: has_route(address, topic), ROUTE_TIMEOUT_S, f"a route to {topic}")
        return topic


def kinds() -> list[str]:
    """Apache's broker, and ours where it is built."""
    return [APACHE, OURS] if our_broker_is_built() else [APACHE]


@contextmanager
def one_cluster(root: Path, kind: str, flush: str = "ASYNC_FLUSH") -> Iterator[BrokerCluster]:
    """A broker in the state in which it is measured."""
    home = root / f"{kind}-{flush}-{next(_numbers)}"
    properties = {"flushDiskType": flush}
    with BrokerCluster(kind, home, properties, java_flags=MEASURING_FLAGS) as cluster:
        yield cluster


@contextmanager
def sides(root: Path, flush: str = "ASYNC_FLUSH") -> Iterator[list[Side]]:
    """All brokers, and one warm Java process that loads them."""
    with ExitStack() as stack:
        java = stack.enter_context(JavaClient(APACHE, LOAD_FLAGS, quick_start=False))
        found = []
        for kind in kinds():
            cluster = stack.enter_context(one_cluster(root, kind, flush))
            name = f"load-{next(_numbers)}"
            java.call(
                "producer.start",
                producer=name,
                group="benchmark_producer",
                ns=cluster.name_server_address,
                instance=name,
            )
            found.append(Side(cluster, java, name))
        yield found


class Cost(NamedTuple):
    """CPU time and memory of a process."""

    cpu_s: float
    resident_mb: float


def cost_of(pid: int) -> Cost:
    """From the kernel's accounts: CPU seconds of all threads, resident memory."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # utime and stime are the 14th and 15th fields; the first two come before the split.
    cpu_s = (int(after_name[11]) + int(after_name[12])) / _TICKS_PER_S
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return Cost(cpu_s, int(line.split()[1]) / 1024)
    return Cost(cpu_s, 0.0)


def unavailable() -> str | None:
    """Why Apache's broker cannot run on this machine, or None."""
    try:
        JavaClient(APACHE).kill()
    except PeerUnavailable as missing:
        return str(missing)
    return None
