"""Java push consumers: how fast a backlog is read, and how soon a waiting one gets a message."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.broker_servers import APACHE, Side, sides
from benchmarks.measure import info, ratio
from tests.interop.server_processes import BROKER_NAME, OURS

LATENCY_ROUNDS = 100


def fill(side: Side, topic: str, count: int) -> int:
    """At least `count` messages of 100 bytes; how many there are."""
    there = 0
    while there < count:
        side.call("load.produce", topic=topic, threads=4, size=100, batch=100, ms=1000)
        found = [side.call("admin.offsets", topic=topic, queue=queue) for queue in range(4)]
        there = sum(one["max"] for one in found)
    return there


def consume_rate(side: Side, topic: str, count: int, number: int) -> float:
    """Messages per second of a new group that starts at the first offset."""
    figures = side.java.call(
        "load.consume",
        ns=side.cluster.name_server_address,
        instance=f"consume-{side.producer}-{number}",
        group=f"consume-{number}",
        topic=topic,
        count=count,
    )
    return count / float(figures["seconds"])


def run(root: Path, quick: bool) -> None:
    """Throughput of a backlog, in turns."""
    count, rounds = (100_000, 3) if quick else (1_000_000, 5)
    with sides(root) as found:
        topics = {side.kind: side.new_topic() for side in found}
        there = {side.kind: fill(side, topics[side.kind], count) for side in found}
        rates: dict[str, list[float]] = {side.kind: [] for side in found}
        for number in range(rounds + 1):
            for side in found:
                rate = consume_rate(side, topics[side.kind], min(there.values()), number)
                if number > 0:
                    rates[side.kind].append(rate)
    results = {kind: statistics.median(taken) for kind, taken in rates.items()}
    for kind, rate in results.items():
        info(f"push consumer {kind}: {rate:.0f} msg/s of 100 B")
    if OURS in results:
        ratio("push_consumer_rate_over_apache", results[OURS] / results[APACHE], ">=1")


def run_latency(root: Path, quick: bool) -> None:
    """From before the send until the listener of a waiting consumer, one message at a time."""
    with sides(root) as found:
        topics = {side.kind: side.new_topic(1) for side in found}
        for side in found:
            side.java.call(
                "push.start",
                consumer=f"latency-{side.producer}",
                ns=side.cluster.name_server_address,
                instance=f"latency-{side.producer}",
                group="latency",
                topic=topics[side.kind],
                brief=True,
            )
        medians: dict[str, list[float]] = {side.kind: [] for side in found}
        for number in range(3 if quick else 6):
            for side in found:
                spent = side.java.call(
                    "producer.latency",
                    producer=side.producer,
                    broker=BROKER_NAME,
                    topic=topics[side.kind],
                    rounds=LATENCY_ROUNDS,
                    gap_ms=10,
                    mark=f"{side.kind}-{number}-",
                )
                if number > 0:
                    medians[side.kind].append(spent[len(spent) // 2])
    results = {kind: statistics.median(taken) for kind, taken in medians.items()}
    for kind, spent_us in results.items():
        info(f"long-poll delivery {kind}: p50 {spent_us / 1000:.2f} ms")
    if OURS in results:
        ratio("long_poll_p50_over_apache", results[OURS] / results[APACHE], "<=1")
