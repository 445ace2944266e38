"""Cost growth: append and read as the log and the number of queues grow."""

from __future__ import annotations

import dataclasses
import shutil
import statistics
import time
from pathlib import Path

from benchmarks.measuring.measure import column_batch, seconds, touch_memory
from benchmarks.measuring.results import ratio, row
from benchmarks.measuring.rounds import MIN_ROUNDS, figure, in_turns, ratio_of
from benchmarks.store_parts.append import NO_FLUSH
from benchmarks.store_parts.read import SEVEN
from broker_core import MessageStore
from broker_core.codec.records.arrow_columns import to_arrow

MIB = 1 << 20
# Ten thousand queues of the default file size would take 60 GB of file length.
SMALL_QUEUES_FILE_SIZE = 20_000
QUEUES_MAX, MEASURED, READ, ROWS = 10_000, 1_000, 300, 100
QUEUE_COUNTS = (1, 100, QUEUES_MAX)


def by_log_size(root: Path, quick: bool) -> None:
    """Rates of the last stretch of the log at 10 MB, 100 MB, … of it."""
    steps = [10, 100, 1_000] if quick else [10, 100, 1_000, 10_000]
    batch = column_batch(4_000, 1024)
    figures = []
    with MessageStore.open(root / "size", NO_FLUSH) as store:
        for step in steps:
            while store.log_range[1] < step * MIB:
                store.append_batch(batch)
            touch_memory(root, 32 * MIB)
            appends = figure(
                batch.count / seconds(lambda: store.append_batch(batch)) for _ in range(15)
            )
            end = store.offsets("bench", 0)[1]

            def read(end: int = end) -> None:
                start = max(end - 40_000, 0)
                for low in range(start, end, 4_000):
                    high = min(low + 4_000, end)
                    to_arrow(store.read_columns("bench", 0, low, high, SEVEN), high - low)

            seconds(read)
            reads = figure(min(end, 40_000) / seconds(read) for _ in range(9))
            figures.append((step, appends, reads))
            for name, one in (("append", appends), ("read", reads)):
                row(
                    "growth with the log",
                    name,
                    "1 KiB, no sync",
                    "msg/s",
                    one,
                    x=step,
                    x_name="MB of log",
                )
    shutil.rmtree(root / "size")
    first, last = figures[0], figures[-1]
    at = f"at_{last[0]}_MB_over_{first[0]}_MB_of_log"
    ratio(f"append_{at}", ratio_of(last[1], first[1]), ">=0.8", f"{first[0]} MB")
    ratio(f"read_{at}", ratio_of(last[2], first[2]), ">=0.8", f"{first[0]} MB")


def by_queue_count(root: Path, quick: bool) -> None:
    """The same rows to one queue and spread over 10,000: per row and in all."""
    config = dataclasses.replace(NO_FLUSH, consume_queue_file_size=SMALL_QUEUES_FILE_SIZE)
    taken: dict[str, dict[str, list[float]]] = {
        str(queues): {"append": [], "read": []} for queues in QUEUE_COUNTS
    }

    def take(name: str, number: int) -> None:
        with MessageStore.open(root / f"queues-{name}", config) as store:
            appended, read = queue_rates(store, int(name), root)
        shutil.rmtree(root / f"queues-{name}")
        taken[name]["append"].append(appended)
        taken[name]["read"].append(read)

    in_turns(list(taken), take, MIN_ROUNDS, warm_ups=0)
    found = {
        int(name): {side: figure(rates) for side, rates in by_side.items()}
        for name, by_side in taken.items()
    }
    for queues, by_side in found.items():
        for side, one in by_side.items():
            row(
                "growth with queues",
                side,
                "100 rows of 1 KiB a call",
                "msg/s",
                one,
                x=queues,
                x_name="queues",
            )
    for side in ("append", "read"):
        value = ratio_of(found[QUEUES_MAX][side], found[1][side])
        ratio(f"{side}_with_{QUEUES_MAX}_queues_over_1", value, ">=0.8", "1 queue")


def queue_rates(store: MessageStore, queues: int, root: Path) -> tuple[float, float]:
    """Rows per second into queues that exist, and out of them, at the end of a log of one size.

    Every queue gets its first rows unmeasured, because a queue is created once. The log has the
    same number of rows for any number of queues, so that the age of the rows is the same.
    """
    batch = column_batch(ROWS, 1024, topic="bench", queues=1)
    spent = []
    for number in range(QUEUES_MAX + MEASURED):
        if number == QUEUES_MAX:
            touch_memory(root, 2 * MEASURED * ROWS * 1_200)
        topic = b"topic-%d" % (number % queues)
        started = time.perf_counter()
        store.append_batch(batch._replace(queues=((topic, 0),)))
        spent.append(time.perf_counter() - started)
    appended = ROWS / statistics.median(spent[-MEASURED:])
    last = range(QUEUES_MAX + MEASURED - READ, QUEUES_MAX + MEASURED)
    ranges = [(f"topic-{number % queues}", number // queues * ROWS) for number in last]

    def read() -> None:
        for topic, start in ranges:
            to_arrow(store.read_columns(topic, 0, start, start + ROWS, SEVEN), ROWS)

    seconds(read)
    return appended, statistics.median(READ * ROWS / seconds(read) for _ in range(9))


def run(root: Path, quick: bool) -> None:
    """Both directions of growth."""
    by_log_size(root, quick)
    by_queue_count(root, quick)
