"""Latency that waiting for a synced copy at a slave adds to a send.

Measured against a round trip to a bare process that writes what it gets to a file, syncs it and
answers. The sends with and without the wait and these round trips take turns in short blocks, since
a shared disk changes its speed several times while this runs. A round trip and a sync are also
measured alone, each in a tight loop. Their sum leaves out the wake-ups of waiting processes, so it
is printed but is not the reference.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measuring.measure import run_loop
from benchmarks.measuring.results import ratio, samples
from benchmarks.measuring.rounds import figure, order, ratio_of
from broker_core import EmbeddedCluster
from broker_core.client.connection.config import ClientConfig
from broker_core.client.produce.producer import Producer
from broker_core.codec.wire.bodies.message_queue import MessageQueue

BODY_SIZE = 1024
BLOCK = 20
# The first sends of a block are slower, because caches have other data.
SKIPPED = 2
FILE_SIZE = 64 << 20

# The file has its blocks allocated, as a log has. Without a file the bytes are only answered.
_FAR_END = """
import os, socket, sys
size, path = int(sys.argv[1]), sys.argv[2:]
if path:
    file = os.open(path[0], os.O_RDWR | os.O_CREAT, 0o600)
    os.posix_fallocate(file, 0, int(path[1]))
    os.fsync(file)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while True:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            sys.exit()
        data += more
    if path:
        os.write(file, data)
        os.fdatasync(file)
    peer.sendall(b"12345678")
"""


@contextlib.contextmanager
def _round_trips(*file: str) -> Iterator[Callable[[], None]]:
    """A function that sends bytes to another process and waits for 8; with a file, synced there."""
    command = [sys.executable, "-c", _FAR_END, str(BODY_SIZE), *file]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            payload = bytes(BODY_SIZE)

            def call() -> None:
                link.sendall(payload)
                left = 8
                while left:
                    left -= len(link.recv(left))

            yield call


@contextlib.contextmanager
def _syncs(path: Path) -> Iterator[Callable[[], None]]:
    """A function that makes appended bytes durable in a file whose blocks are allocated."""
    payload = os.urandom(BODY_SIZE)
    with path.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, FILE_SIZE)
        os.fsync(file.fileno())

        def call() -> None:
            file.write(payload)
            os.fdatasync(file.fileno())

        yield call


async def _times_us(
    root: Path, name_servers: dict[str, str], blocks: int
) -> dict[str, list[float]]:
    """Sends, one after the other, by name server, and what they are compared with."""
    body, queue = bytes(BODY_SIZE), MessageQueue("Latency", "broker-a", 0)
    times: dict[str, list[float]] = {}

    def note(kind: str, number: int, started: float) -> None:
        if number >= SKIPPED:
            times.setdefault(kind, []).append(time.perf_counter() - started)

    async with contextlib.AsyncExitStack() as stack:
        producers = {
            kind: await stack.enter_async_context(
                Producer(ClientConfig((name_server,)), coalesce=False)
            )
            for kind, name_server in name_servers.items()
        }
        copy = str(root / "copy"), str(FILE_SIZE)
        calls = {
            "copy": stack.enter_context(_round_trips(*copy)),
            "wire": stack.enter_context(_round_trips()),
            "disk": stack.enter_context(_syncs(root / "synced")),
        }
        competitors = [*producers, *calls]
        for block in range(blocks):
            for index in order(block, len(competitors)):
                kind = competitors[index]
                for number in range(BLOCK):
                    started = time.perf_counter()
                    if kind in producers:
                        await producers[kind].send("Latency", body, queue=queue)
                    else:
                        calls[kind]()
                    note(kind, number, started)
    return {kind: [one * 1e6 for one in taken] for kind, taken in times.items()}


def run_sync(root: Path, quick: bool) -> None:
    """Without and with the wait for a slave that syncs.

    Once with masters that answer from memory: the copy alone makes the difference. Once with
    masters that sync, too, the broker's default: the copy is made while they do.
    """
    name_servers = {}
    with contextlib.ExitStack() as stack:
        for flush, kind in itertools.product(("async", "sync"), repeat=2):
            name = f"{flush} flush, {kind} copy"
            cluster = EmbeddedCluster(
                slaves_per_master=1,
                replication=kind,
                flush=flush,
                directory=root / f"{flush}-{kind}",
                topics={"Latency": 1},
            )
            stack.enter_context(cluster)
            slave = cluster.node("broker-a:1")
            slave.set_properties(flushDiskType="SYNC_FLUSH")
            cluster.restart(slave)
            cluster.wait_in_sync()
            name_servers[name] = cluster.name_server
        times = run_loop(_times_us(root, name_servers, 60 if quick else 450))
    texts = {
        "copy": "round trip to a process that writes and syncs",
        "wire": "round trip alone",
        "disk": "write and sync alone",
    }
    for kind, taken in times.items():
        samples("replication, one send at a time", texts.get(kind, kind), "1 KiB", "us", taken)
    thirds = {kind: figure(_middles(taken)) for kind, taken in times.items()}
    for flush, label in (("async", ""), ("sync", "_synced_master")):
        alone, copied = thirds[f"{flush} flush, async copy"], thirds[f"{flush} flush, sync copy"]
        pairs = zip(copied.values, alone.values, strict=True)
        added = figure(with_copy - without for with_copy, without in pairs)
        name = f"replication_sync_added_latency{label}_vs_round_trip_and_sync"
        ratio(name, ratio_of(added, thirds["copy"]), "<=1.3", texts["copy"])


def _middles(taken: list[float]) -> list[float]:
    """Medians of the first, second and last third."""
    size = len(taken) // 3
    return [statistics.median(taken[low : low + size]) for low in range(0, 3 * size, size)]
