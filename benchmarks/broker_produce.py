"""Java producers: throughput, tail latency and the broker's CPU, Apache's broker beside ours.

The loop is that of Apache's own benchmark `Producer` and `BatchProducer`, kept in one warm process
and with latencies recorded; `run_apache_programs` runs those two programs themselves.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

from benchmarks.broker_servers import APACHE, Side, cost_of, medians, sides
from benchmarks.measure import info, ratio, touch_memory
from tests.interop.java_client import java_tool
from tests.interop.maven_artifacts import resolved_jars
from tests.interop.server_processes import OURS

BATCH_COUNT = 100
BATCH_THREADS = 4
PROGRAM_S = 45
# More than any broker here stores in a second, of batches and of single messages.
STORED_PER_S = 300 << 20
STORED_SINGLY_PER_S = 64 << 20
_PROGRAM_FLAGS = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


class Load(NamedTuple):
    """One shape of load; the name is part of the printed line."""

    threads: int
    size: int
    batch: int = 1

    @property
    def name(self) -> str:
        shape = f"batch{self.batch}_{self.size}B" if self.batch > 1 else f"{self.size}B"
        return f"{self.threads}_threads_{shape}"


FULL = [Load(threads, size) for size in (100, 1024) for threads in (1, 16, 64)]
QUICK = [Load(1, 100), Load(16, 100), Load(64, 100), Load(64, 1024)]
BATCHES = Load(BATCH_THREADS, 100, BATCH_COUNT)


def load_once(side: Side, topic: str, load: Load, seconds: float) -> dict[str, float]:
    """One round on one broker, which finds memory for what it will store."""
    touch_memory(
        side.cluster.store.parent,
        int(seconds * (STORED_PER_S if load.batch > 1 else STORED_SINGLY_PER_S)),
    )
    pid = side.cluster.broker.pid
    before = cost_of(pid)
    figures = side.call(
        "load.produce",
        topic=topic,
        threads=load.threads,
        size=load.size,
        batch=load.batch,
        ms=int(seconds * 1000),
    )
    spent = cost_of(pid).cpu_s - before.cpu_s
    if figures["failed"] or not figures["sent"]:
        info(f"{side.kind} {load.name}: {figures['failed']} sends failed")
    sent = max(figures["sent"], 1)
    return {
        "rate": sent / figures["seconds"],
        "p50_us": figures["p50_us"],
        "p99_us": figures["p99_us"],
        "cpu_s_per_million": spent / sent * 1e6,
    }


def compare(found: list[Side], load: Load, seconds: float, rounds: int, label: str) -> None:
    """Rounds in turns after one of warm-up each; prints a line per goal."""
    topics = {side.kind: side.new_topic() for side in found}
    taken: dict[str, list[dict[str, float]]] = {side.kind: [] for side in found}
    for number in range(rounds + 1):
        for side in found:
            figures = load_once(side, topics[side.kind], load, seconds)
            if number > 0:
                taken[side.kind].append(figures)
    results = {kind: medians(figures) for kind, figures in taken.items()}
    for kind, figures in results.items():
        info(
            f"{label} {load.name} {kind}: {figures['rate']:.0f} msg/s, p50 "
            f"{figures['p50_us']:.0f} us, p99 {figures['p99_us']:.0f} us, broker CPU "
            f"{figures['cpu_s_per_million']:.1f} s per million"
        )
    if OURS not in results:
        return
    ours, apache = results[OURS], results[APACHE]
    goal = ">=1.5" if load.batch > 1 else ">=1.2"
    ratio(f"{label}_{load.name}_rate_over_apache", ours["rate"] / apache["rate"], goal)
    tail = ours["p99_us"] / max(apache["p99_us"], 1)
    ratio(f"{label}_{load.name}_p99_over_apache", tail, "<=1")
    cpu = ours["cpu_s_per_million"] / max(apache["cpu_s_per_million"], 1e-9)
    ratio(f"{label}_{load.name}_cpu_over_apache", cpu, "<=0.8")


def measure(root: Path, quick: bool, flush: str, label: str) -> None:
    seconds, rounds = (1.0, 3) if quick else (5.0, 5)
    with sides(root, flush) as found:
        # The compiler of the loading process and of the brokers needs thousands of sends first.
        for side in found:
            load_once(side, side.new_topic(), Load(64, 100), 8 if quick else 20)
            load_once(side, side.new_topic(), BATCHES, 3 if quick else 10)
        loads = QUICK if quick else FULL
        if quick and flush == "SYNC_FLUSH":
            loads = [Load(1, 1024), Load(64, 1024)]
        for load in loads:
            compare(found, load, seconds, rounds, label)
        compare(found, BATCHES, seconds, rounds, label)


def run_async_flush(root: Path, quick: bool) -> None:
    """ASYNC_FLUSH on both."""
    measure(root, quick, "ASYNC_FLUSH", "async_flush")


def run_sync_flush(root: Path, quick: bool) -> None:
    """SYNC_FLUSH on both."""
    measure(root, quick, "SYNC_FLUSH", "sync_flush")


def program_rates(name_server: str, program: str, topic: str, *options: str) -> list[float]:
    """What Apache's benchmark program prints about its rate, report by report."""
    jars = resolved_jars("rocketmq-example-5.5.0", ["org.apache.rocketmq:rocketmq-example:5.5.0"])
    command = [
        java_tool("java"), *_PROGRAM_FLAGS, "-cp", f"{jars}/*",
        f"org.apache.rocketmq.example.benchmark.{program}", "-n", name_server, "-t", topic,
        "-ri", "2000", *options,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    ended = threading.Timer(PROGRAM_S, process.kill)
    ended.start()
    output = process.communicate()[0].decode(errors="replace")
    ended.cancel()
    return [float(found) for found in re.findall(r"TPS: *([0-9.]+)", output)]


def run_apache_programs(root: Path, quick: bool) -> None:
    """Apache's `Producer` and `BatchProducer` as they are; too long to be quick."""
    if quick:
        info("Apache's own programs take half a minute each: not measured when quick")
        return
    runs = [("Producer", count, size) for size in (100, 1024) for count in (1, 16, 64)]
    runs.append(("BatchProducer", BATCH_THREADS, 100))
    for flush, label in (("ASYNC_FLUSH", "async_flush"), ("SYNC_FLUSH", "sync_flush")):
        with sides(root, flush) as found:
            for program, count, size in runs:
                compare_program(found, label, program, count, size)


def compare_program(found: list[Side], label: str, program: str, count: int, size: int) -> None:
    """One of Apache's programs against each broker; prints a line for its goal."""
    rates: dict[str, float] = {}
    for side in found:
        options = ["-w", str(count), "-s", str(size)]
        if program == "BatchProducer":
            options += ["-b", str(BATCH_COUNT)]
        address = side.cluster.name_server_address
        seen = program_rates(address, program, side.new_topic(), *options)
        # Each report covers the last ten seconds; the first ones are still warming up.
        rates[side.kind] = statistics.median(seen[-3:]) if seen else 0.0
        info(f"{label} {program} {count} threads {size} B {side.kind}: {rates[side.kind]:.0f} TPS")
    if OURS in rates and rates[APACHE]:
        goal = ">=1.5" if program == "BatchProducer" else ">=1.2"
        name = f"{label}_apache_{program}_{count}_threads_{size}B_rate_over_apache"
        ratio(name, rates[OURS] / rates[APACHE], goal)
