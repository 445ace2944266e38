"""Java producers: throughput, tail latency and the broker's CPU, Apache's broker beside ours.

The loop is that of Apache's own benchmark `Producer` and `BatchProducer`, kept in one warm process
and with latencies recorded; `run_apache_programs` runs those two programs themselves.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.broker_parts.servers import APACHE, Side, cost_of, sides
from benchmarks.measuring.measure import touch_memory
from benchmarks.measuring.results import info, ratio, row
from benchmarks.measuring.rounds import SAMPLES_FOR_P99, Figure, figure, in_turns, order, ratio_of
from tests.interop.java_client import java_tool
from tests.interop.maven_artifacts import resolved_jars
from tests.interop.server_processes import OURS

BATCH_COUNT = 100
BATCH_THREADS = 4
# A Java producer gets faster at batches for this long.
WARM_BATCHES_S = 20.0
# Shorter rounds of batches differ by a factor of two.
BATCHES_S = 4.0
PROGRAM_S = 45
# As much memory as is warmed before one of Apache's programs, which run too long to warm it all.
PROGRAM_TOUCHED = 4 << 30
# The last reports of one of Apache's programs, each of the ten seconds before it.
MIN_REPORTS = 3
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

    @property
    def text(self) -> str:
        """The load in words."""
        batch = f", batches of {self.batch}" if self.batch > 1 else ""
        return f"{self.threads} threads, {self.size} B{batch}"


FULL = [Load(threads, size) for size in (100, 1024) for threads in (1, 16, 64)]
QUICK = [Load(1, 100), Load(16, 100), Load(64, 100), Load(64, 1024)]
BATCHES = Load(BATCH_THREADS, 100, BATCH_COUNT)


def load_once(
    side: Side, topic: str, load: Load, seconds: float, *, touch: bool = True
) -> dict[str, float]:
    """One round on one broker, which finds memory for what it will store."""
    if touch:
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
    after = cost_of(pid)
    if figures["failed"] or not figures["sent"]:
        info(f"{side.kind} {load.name}: {figures['failed']} sends failed")
    sent = max(figures["sent"], 1)
    return {
        "rate": sent / figures["seconds"],
        "sends": sent / load.batch,
        "p50_us": figures["p50_us"],
        "p99_us": figures["p99_us"],
        "cpu_s_per_million": (after.cpu_s - before.cpu_s) / sent * 1e6,
        "resident_mb": after.resident_mb,
    }


TITLES = {
    "rate": "throughput",
    "p50_us": "p50",
    "p99_us": "p99",
    "cpu_s_per_million": "CPU of the broker",
    "resident_mb": "resident memory, mapped files included",
}
UNITS = {
    "rate": "msg/s",
    "p50_us": "us",
    "p99_us": "us",
    "cpu_s_per_million": "CPU s per million",
    "resident_mb": "MB",
}


def figures_of(taken: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, Figure]]:
    """Field by field for each competitor; p99 only if every round had enough sends for one."""
    fields = [field for field in UNITS if field != "p99_us"]
    if all(one["sends"] >= SAMPLES_FOR_P99 for rounds in taken.values() for one in rounds):
        fields.append("p99_us")
    return {
        field: {kind: figure(one[field] for one in rounds) for kind, rounds in taken.items()}
        for field in fields
    }


def compare(found: list[Side], load: Load, seconds: float, rounds: int, flush: str) -> None:
    """Rounds in turns after one of warm-up each; prints a line per goal."""
    label = flush.lower()
    by_kind = {side.kind: side for side in found}
    topics = {side.kind: side.new_topic() for side in found}
    taken: dict[str, list[dict[str, float]]] = {side.kind: [] for side in found}

    def take(kind: str, number: int) -> None:
        figures = load_once(by_kind[kind], topics[kind], load, seconds)
        if number >= 0:
            taken[kind].append(figures)

    in_turns(list(by_kind), take, rounds)
    results = figures_of(taken)
    settings = dict.fromkeys(by_kind, f"flushDiskType={flush}, {load.text}")
    for field, by in results.items():
        for kind, one in by.items():
            table = f"broker, Java producers, {TITLES[field]}"
            row(table, kind_name(kind), settings[kind], UNITS[field], one)
    if load.batch > 1:
        for kind, side in by_kind.items():
            cold = load_once(side, topics[kind], load, seconds, touch=False)["rate"]
            table = "broker, Java producers, one run without touch_memory"
            row(table, kind_name(kind), settings[kind], "msg/s", figure([cold]))
    if OURS not in by_kind:
        return
    goals = {
        "rate": ("rate", ">=1.2" if load.batch > 1 else ">=1.3"),
        "cpu_s_per_million": ("cpu", "<=0.6" if load.batch > 1 else "<=0.5"),
        "p99_us": ("p99", "<=1"),
    }
    for field, (name, goal) in goals.items():
        if field in results:
            value = ratio_of(results[field][OURS], results[field][APACHE])
            ratio(f"{label}_{load.name}_{name}_over_apache", value, goal, kind_name(APACHE))


def kind_name(kind: str) -> str:
    return "ours" if kind == OURS else f"Apache {kind}"


def measure(root: Path, quick: bool, flush: str) -> None:
    seconds, rounds = (1.0, 3) if quick else (5.0, 5)
    with sides(root, flush) as found:
        # The compiler of the loading process and of the brokers needs thousands of sends first.
        for side in found:
            load_once(side, side.new_topic(), Load(64, 100), 8 if quick else 20)
            load_once(side, side.new_topic(), BATCHES, WARM_BATCHES_S)
        loads = QUICK if quick else FULL
        if quick and flush == "SYNC_FLUSH":
            loads = [Load(1, 1024), Load(64, 1024)]
        for load in loads:
            compare(found, load, seconds, rounds, flush)
        compare(found, BATCHES, max(seconds, BATCHES_S), rounds, flush)


def run_async_flush(root: Path, quick: bool) -> None:
    """ASYNC_FLUSH on both."""
    measure(root, quick, "ASYNC_FLUSH")


def run_sync_flush(root: Path, quick: bool) -> None:
    """SYNC_FLUSH on both."""
    measure(root, quick, "SYNC_FLUSH")


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
            for number, (program, count, size) in enumerate(runs):
                turn = [found[index] for index in order(number, len(found))]
                compare_program(turn, label, program, count, size)


def compare_program(found: list[Side], label: str, program: str, count: int, size: int) -> None:
    """One of Apache's programs against each broker; prints a line for its goal."""
    rates: dict[str, Figure] = {}
    for side in found:
        options = ["-w", str(count), "-s", str(size)]
        if program == "BatchProducer":
            options += ["-b", str(BATCH_COUNT)]
        touch_memory(side.cluster.store.parent, PROGRAM_TOUCHED)
        address = side.cluster.name_server_address
        seen = program_rates(address, program, side.new_topic(), *options)
        # Each report covers the last ten seconds; the first ones are still warming up.
        if len(seen) < MIN_REPORTS:
            info(f"{program} said too little about {side.kind}")
            return
        rates[side.kind] = figure(seen[-MIN_REPORTS:])
        settings = f"{label}, {count} threads, {size} B"
        row(f"Apache's {program}", kind_name(side.kind), settings, "msg/s", rates[side.kind])
    if OURS in rates:
        goal = ">=1.2" if program == "BatchProducer" else ">=1.3"
        name = f"{label}_apache_{program}_{count}_threads_{size}B_rate_over_apache"
        ratio(name, ratio_of(rates[OURS], rates[APACHE]), goal, kind_name(APACHE))
