"""Java push consumers: how fast a backlog is read, and how soon a waiting one gets a message."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

from benchmarks.broker_parts.produce import kind_name
from benchmarks.broker_parts.servers import APACHE, Side, sides
from benchmarks.measuring.results import ratio, row, samples
from benchmarks.measuring.rounds import SAMPLES_FOR_P99, compare, figure, in_turns, ratio_of
from tests.interop.server_processes import BROKER_NAME, OURS


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
    numbers = itertools.count()
    with sides(root) as found:
        by_kind = {side.kind: side for side in found}
        topics = {side.kind: side.new_topic() for side in found}
        there = min(fill(side, topics[side.kind], count) for side in found)

        def take(kind: str) -> float:
            return consume_rate(by_kind[kind], topics[kind], there, next(numbers))

        results = compare(list(by_kind), take, rounds)
    for kind, rate in results.items():
        row("broker, Java push consumer", kind_name(kind), "100 B, backlog", "msg/s", rate)
    if OURS in results:
        value = ratio_of(results[OURS], results[APACHE])
        ratio("push_consumer_rate_over_apache", value, ">=1", kind_name(APACHE))


def run_latency(root: Path, quick: bool) -> None:
    """From before the send until the listener of a waiting consumer, one message at a time."""
    rounds = 3 if quick else 6
    with sides(root) as found:
        by_kind = {side.kind: side for side in found}
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
        taken: dict[str, list[list[float]]] = {side.kind: [] for side in found}

        def take(kind: str, number: int) -> None:
            spent = by_kind[kind].java.call(
                "producer.latency",
                producer=by_kind[kind].producer,
                broker=BROKER_NAME,
                topic=topics[kind],
                rounds=SAMPLES_FOR_P99 // rounds + 1,
                gap_ms=10,
                mark=f"{kind}-{number}-",
            )
            if number >= 0:
                taken[kind].append([one / 1000 for one in spent])

        in_turns(list(by_kind), take, rounds)
    for kind, by_round in taken.items():
        every = [one for spent in by_round for one in spent]
        settings = "ASYNC_FLUSH, one message at a time, 10 ms apart"
        samples("broker, send to waiting push consumer", kind_name(kind), settings, "ms", every)
    if OURS in taken:
        middle = {
            kind: figure(statistics.median(spent) for spent in by_round)
            for kind, by_round in taken.items()
        }
        value = ratio_of(middle[OURS], middle[APACHE])
        ratio("long_poll_p50_over_apache", value, "<=1", kind_name(APACHE))
