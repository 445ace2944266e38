"""Cost of our broker when idle and with many connections and topics: start, memory, rates."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.broker_parts.servers import cost_of, kinds, one_cluster
from benchmarks.measuring.measure import run_loop, touch_memory
from benchmarks.measuring.results import info, ratio, row
from benchmarks.measuring.rounds import MIN_ROUNDS, figure, order, ratio_of
from broker_core.codec.wire.bodies.heartbeat_data import HeartbeatData, encode_heartbeat
from broker_core.codec.wire.remoting_command import RemotingCommand, encode_command
from broker_core.protocol_codes import RequestCode
from tests.interop.server_processes import OURS, BrokerCluster, wait_until

IDLE_CLIENTS = 1_000
IDLE_CONNECTIONS = 10_000
TOPICS = 5_000
WINDOW = 64
# A record of 100 bytes and its entries in queue and index.
STORED_PER_SEND = 500
CONNECT_AT_ONCE = 200
STARTS = 5
# The broker appears in routes shortly before its start is done.
IDLE_S = 1.0
# Interval between attempts to connect: how late a listening broker is noticed.
CONNECT_AGAIN_S = 0.001

_opaques = itertools.count(1)


# Java's producers give every message an id of its own and say that they wait for the disk.
_PROPERTIES = "UNIQ_KEY\x017F00000100002A139A550000000A0001\x02WAIT\x01true"


def send_frame(topic: str, body: bytes = bytes(100)) -> bytes:
    """A send as Java's producers make it, without any client around it."""
    now = str(int(time.time() * 1000))
    ext = {
        "a": "bench", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": now,
        "h": "0", "i": _PROPERTIES, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext, body, opaque=next(_opaques))
    return b"".join((encode_command(command), command.body))


class Wire:
    """One connection that speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str) -> Wire:
        host, port = address.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port)))

    async def answers(self, frames: Sequence[bytes]) -> None:
        """Send all frames at once and read as many answers."""
        self._writer.writelines(frames)
        for _ in frames:
            [size] = struct.unpack(">i", await self._reader.readexactly(4))
            answer = await self._reader.readexactly(size)
            if b'"code":0' not in answer[:400]:
                raise RuntimeError(f"refused: {answer[:400]!r}")

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def latencies(address: str, count: int) -> tuple[float, float]:
    """Median and 99th percentile of single sends, in microseconds."""
    wire = await Wire.open(address)
    frame = send_frame("Latency")
    spent = []
    for _ in range(count):
        started = time.perf_counter()
        await wire.answers([frame])
        spent.append((time.perf_counter() - started) * 1e6)
    await wire.close()
    spent.sort()
    return spent[count // 2], spent[int(count * 0.99)]


async def idle_clients(cluster: BrokerCluster, count: int) -> list[Wire]:
    """Idle connections, each of which has announced a producer once."""
    wires = []
    for number in range(count):
        data = HeartbeatData(f"127.0.0.1@idle-{number}", (f"idle-{number % 50}",), ())
        command = RemotingCommand(
            RequestCode.HEART_BEAT, {}, encode_heartbeat(data), opaque=next(_opaques)
        )
        wire = await Wire.open(cluster.address)
        await wire.answers([b"".join((encode_command(command), command.body))])
        wires.append(wire)
    return wires


async def idle_connections(cluster: BrokerCluster, count: int) -> list[Wire]:
    """Connections that send nothing."""
    wires: list[Wire] = []
    while len(wires) < count:
        more = min(CONNECT_AT_ONCE, count - len(wires))
        wires += await asyncio.gather(*(Wire.open(cluster.address) for _ in range(more)))
    return wires


async def measure_idle(cluster: BrokerCluster, quick: bool) -> None:
    pid, sends = cluster.broker.pid, 1_000 if quick else 5_000
    await latencies(cluster.address, sends)
    resident = cost_of(pid).resident_mb
    row(
        "memory with idle connections",
        "broker",
        "after sends",
        "MB",
        figure([resident]),
        x=0,
        x_name="idle connections",
    )
    for name, open_them, count in (
        ("clients", idle_clients, IDLE_CLIENTS),
        ("connections", idle_connections, IDLE_CONNECTIONS),
    ):
        taken = []
        for _ in range(MIN_ROUNDS):
            before = await latencies(cluster.address, sends)
            wires = await open_them(cluster, count)
            try:
                during = await latencies(cluster.address, sends)
            except (ConnectionError, asyncio.IncompleteReadError):
                info(f"{count} idle {name} leave no room for one that sends")
                return
            taken.append((before, during, cost_of(pid).resident_mb))
            await asyncio.gather(*(wire.close() for wire in wires))
        settings = "ASYNC_FLUSH, one connection sends, one message at a time"
        without = figure(before[0] for before, _, _ in taken)
        beside = figure(during[0] for _, during, _ in taken)
        for idle, one in ((0, without), (count, beside)):
            row(
                "p50 with idle connections",
                f"idle {name}",
                settings,
                "us",
                one,
                x=idle,
                x_name="idle connections",
            )
        memory = figure(grown for _, _, grown in taken)
        row(
            "memory with idle connections",
            "broker",
            name,
            "MB",
            memory,
            x=count,
            x_name="idle connections",
        )
        ratio(f"idle_{count}_{name}_more_mb", memory.median - resident, "<=150")
        over_none = ratio_of(beside, without)
        ratio(f"idle_{count}_{name}_p50_over_none", over_none, "<=1.5", "no idle ones")


async def topic_rate(address: str, topics: Sequence[str], count: int) -> float:
    """Messages per second over one connection, `WINDOW` at a time, round robin over the topics."""
    frames = [send_frame(topic) for topic in topics]
    wire = await Wire.open(address)
    cycle = itertools.cycle(frames)
    started = time.perf_counter()
    for _ in range(count // WINDOW):
        await wire.answers([next(cycle) for _ in range(WINDOW)])
    spent = time.perf_counter() - started
    await wire.close()
    return count / spent


def add_topics(cluster: BrokerCluster, topics: Sequence[str]) -> None:
    """Write topics into the table of a stopped broker, so that only sends are measured."""
    path = cluster.store / "config" / "topics.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    known = table["topicConfigTable"]
    for topic in topics:
        known[topic] = {**known["Topic-0"], "topicName": topic}
    # A table without a checksum, as Apache writes it, is accepted.
    table.pop("checksum", None)
    path.write_text(json.dumps(table), encoding="utf-8")


async def measure_topics(root: Path, address: str, many: Sequence[str], quick: bool) -> None:
    count = 20_000 if quick else 100_000
    started = time.perf_counter()
    await topic_rate(address, many, TOPICS + WINDOW)
    info(f"first message to each of {TOPICS} topics: {time.perf_counter() - started:.1f} s")
    steps = (1, 50, 500, TOPICS)
    rates: dict[int, list[float]] = {step: [] for step in steps}
    for number in range(STARTS):
        for index in order(number, len(steps)):
            touch_memory(root, count * STORED_PER_SEND)
            rates[steps[index]].append(await topic_rate(address, many[: steps[index]], count))
    found = {step: figure(taken) for step, taken in rates.items()}
    for step, one in found.items():
        settings = f"ASYNC_FLUSH, one connection, {WINDOW} in flight"
        row("growth with topics", "sends", settings, "msg/s", one, x=step, x_name="topics")
    value = ratio_of(found[TOPICS], found[1])
    ratio(f"rate_{TOPICS}_topics_over_one", value, ">=0.8", "one topic")


async def first_ack(address: str) -> None:
    """Wait until a send is acknowledged, without a time limit."""
    while True:
        try:
            wire = await Wire.open(address)
        except ConnectionError:
            await asyncio.sleep(CONNECT_AGAIN_S)
            continue
        await wire.answers([send_frame("First")])
        await wire.close()
        return


def start_times(root: Path) -> list[float]:
    """Milliseconds from the start of the process to the first acknowledged send."""
    spent = []
    with one_cluster(root, OURS) as cluster:
        for _ in range(STARTS):
            cluster.broker.stop()
            started = time.perf_counter()
            cluster.broker.start(wait=False)
            run_loop(first_ack(cluster.address))
            spent.append((time.perf_counter() - started) * 1000)
            wait_until(cluster.is_routed, 30, "a route")
    return spent


def run_start(root: Path, quick: bool) -> None:
    """Start and memory at rest."""
    if OURS not in kinds():
        return
    # An installed package has its bytecode beside it; a checkout may be told to write none.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(root / "bytecode")
    idle = []
    for _ in range(MIN_ROUNDS):
        with one_cluster(root, OURS) as cluster:
            time.sleep(IDLE_S)
            idle.append(cost_of(cluster.broker.pid).resident_mb)
    row("broker, idle memory", "a new broker", "before the first request", "MB", figure(idle))
    ratio("idle_rss_mb", figure(idle).median, "<=35")
    spent = figure(start_times(root))
    row("broker, start", "to the first acknowledgement", "ASYNC_FLUSH", "ms", spent)
    ratio("start_to_first_ack_ms", spent.median, "<=150")


def run_idle(root: Path, quick: bool) -> None:
    """Many idle connections."""
    if OURS in kinds():
        with one_cluster(root, OURS) as cluster:
            run_loop(measure_idle(cluster, quick))


def run_topics(root: Path, quick: bool) -> None:
    """Many topics."""
    if OURS in kinds():
        with one_cluster(root, OURS) as cluster:
            many = [f"Topic-{number}" for number in range(TOPICS)]
            run_loop(topic_rate(cluster.address, many[:1], WINDOW))
            cluster.broker.stop()
            add_topics(cluster, many)
            cluster.start_broker()
            run_loop(measure_topics(root, cluster.address, many, quick))
