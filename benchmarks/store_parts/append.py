"""Batch append into the page cache: against memcpy, against fixed rates, against the Java store."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measuring.measure import column_batch, median, seconds, touch_memory
from benchmarks.measuring.results import info, ratio, row
from benchmarks.measuring.rounds import Figure, compare, figure, ratio_of
from broker_core import ColumnBatch, FlushDiskType, MessageStore, StoreConfig
from broker_core.codec.native import measure_batch
from tests.interop.maven_artifacts import PeerUnavailable

# Nothing is synced meanwhile, as in the Java figure: the append itself is measured.
NO_FLUSH = StoreConfig(
    flush_disk_type=FlushDiskType.ASYNC_FLUSH,
    flush_interval_ms=1_000_000_000,
    dispatch_checkpoint_interval_ms=1_000_000_000,
    page_cache_busy_timeout_ms=60_000,
)
BATCH_ROWS = {100: 20_000, 1024: 4_000}
# For both stores: that of Apache's own benchmark, and one that a bulk producer sends.
JAVA_BATCHES = (100, 1_000)
ROUND_BYTES = 200 << 20
# As many bytes as the store writes at once.
WRITE_SIZE = 512 << 10


def append_rates(
    root: Path, body_size: int, round_bytes: int = ROUND_BYTES, config: StoreConfig = NO_FLUSH
) -> tuple[Figure, Figure]:
    """Messages per second of the append calls, and until the queues of all rows are built."""
    batch = column_batch(BATCH_ROWS[body_size], body_size)
    batches = max(round_bytes // (batch.count * (body_size + 120)), 2)
    rates = append_rounds(root, batch, batches, config, rounds=5)
    return figure(rate for rate, _ in rates), figure(rate for _, rate in rates)


def append_rounds(
    root: Path, batch: ColumnBatch, batches: int, config: StoreConfig, rounds: int
) -> list[tuple[float, float]]:
    """Messages per second for each round: of the append calls, and with dispatch to its end."""
    rates: list[tuple[float, float]] = []

    async def measured() -> None:
        store = MessageStore.open(root / "append", config)
        await store.start()
        for _ in range(rounds + 1):
            started = time.perf_counter()
            spent = 0.0
            for _ in range(batches):
                spent += seconds(lambda: store.append_batch(batch))
                await asyncio.sleep(0)  # lets the store dispatch
            while store.dispatched_position < store.log_range[1]:  # noqa: ASYNC110
                await asyncio.sleep(0)
            total = time.perf_counter() - started
            rates.append((batches * batch.count / spent, batches * batch.count / total))
        store.close()

    asyncio.run(measured())
    shutil.rmtree(root / "append")
    # The first round runs with a cold allocator and cold memory.
    return rates[1:]


def memcpy_rate(size: int) -> float:
    """Bytes per second of a plain copy of that many bytes into touched memory."""
    source, target = os.urandom(1 << 20) * (size >> 20), bytearray(size)
    view = memoryview(target)

    def copy() -> None:
        view[:] = source

    return median(lambda: size / seconds(copy))


def plain_write_rate(root: Path, size: int) -> float:
    """Bytes per second of writes into a file whose room is reserved, as the log's is; no sync."""
    block = os.urandom(WRITE_SIZE)

    with (root / "written").open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        started = time.perf_counter()
        for _ in range(size // len(block)):
            file.write(block)
        rate = size / (time.perf_counter() - started)
    (root / "written").unlink()
    return rate


def run(root: Path, quick: bool) -> None:
    """Our append with the codec in use."""
    size = ROUND_BYTES >> 1 if quick else ROUND_BYTES
    copy = memcpy_rate(64 << 20)
    info(f"memcpy {copy / 1e9:.1f} GB/s")
    goals = {
        100: ("append_100B_over_3M_msg_per_s", 3e6),
        1024: ("append_1KiB_over_1_GB_per_s", 1e9 / 1024),
    }
    for body_size, (goal, least) in goals.items():
        touch_memory(root, 8 * size)
        appended, dispatched = append_rates(root, body_size, size)
        rows = f"ASYNC_FLUSH, no sync meanwhile, batches of {BATCH_ROWS[body_size]}"
        table = "store, batch append"
        row(table, "append calls", rows, "msg/s", appended, x=body_size)
        row(table, "until the queues are built", rows, "msg/s", dispatched, x=body_size)
        info(f"append over memcpy at {body_size} B: {appended.median * body_size / copy:.3f}")
        least_rate = figure([least] * len(appended.values))
        ratio(goal, ratio_of(appended, least_rate), ">=1", "a fixed rate")


def run_pure_python(root: Path, quick: bool) -> None:
    """The same in a process that is told not to use the native codec."""
    size = 40 << 20
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from benchmarks.store_parts.append import append_rates;"
        f"print(*append_rates(Path(sys.argv[2]), 100, {size})[0].values)"
    )
    project = str(Path(__file__).resolve().parents[2])
    touch_memory(root, 8 * size)
    answer = subprocess.run(
        [sys.executable, "-c", script, project, str(root)],
        env={**os.environ, "RMQ_CODEC": "python"},
        capture_output=True,
        text=True,
        check=True,
    )
    rates = figure(float(rate) for rate in answer.stdout.split())
    row("store, batch append", "append calls, pure Python", "no sync", "msg/s", rates, x=100)
    value = ratio_of(rates, figure([5e5] * len(rates.values)))
    ratio("append_100B_pure_python_over_0.5M_msg_per_s", value, ">=1", "a fixed rate")


def run_java(root: Path, quick: bool) -> None:
    """Beside Apache's own store (rocketmq-store 5.5.0): same file size, flush and batches.

    As an operator gets them, ASYNC_FLUSH with its defaults; on both sides the time ends when the
    queues of all messages are built.
    """
    from benchmarks.peers.java_store import java_store_unavailable

    reason = java_store_unavailable()
    if reason is not None:
        raise PeerUnavailable(reason)
    rounds = 3 if quick else 5
    for body_size, count in ((100, 1_000_000), (1024, 200_000)):
        for batch_rows in JAVA_BATCHES:
            beside_java(root, body_size, count // 2 if quick else count, batch_rows, rounds)


def beside_java(root: Path, body_size: int, count: int, batch_rows: int, rounds: int) -> None:
    """Both stores in turns; prints a line for the goal."""
    from benchmarks.peers.java_store import java_store_append

    batch = column_batch(batch_rows, body_size)
    # The same bytes, and the same kind of memory for them, for both stores.
    size = count * (body_size + 120)
    default = StoreConfig(flush_disk_type=FlushDiskType.ASYNC_FLUSH)

    def take(name: str, *, touch: bool = True) -> float:
        if touch:
            touch_memory(root, 3 * size)
        if name == "ours":
            return append_rounds(root, batch, max(count // batch_rows, 2), default, 1)[0][1]
        if name == "plain write":
            return plain_write_rate(root, size) / record_size(body_size)
        return java_store_append(
            body_size, count, batch_rows, rounds=1, directory=root
        ).dispatched_per_s

    names = ["ours", "Java's store 5.5.0", "plain write"]
    found = compare(names, take, rounds, warm_ups=0)
    settings = f"ASYNC_FLUSH with its defaults, {body_size} B, batches of {batch_rows}"
    texts = dict.fromkeys(names, f"{settings}, dispatch included")
    texts["plain write"] = "writing such records into a reserved file, nothing else"
    for name, one in found.items():
        row("store beside Java's store", name, texts[name], "msg/s", one)
    for name in names[:2]:
        cold = figure([take(name, touch=False)])
        table = "store beside Java's store, one run without touch_memory"
        row(table, name, texts[name], "msg/s", cold)
    label = "100B" if body_size == 100 else "1KiB"
    value = ratio_of(found["ours"], found[names[1]])
    ratio(f"append_{label}_batches_of_{batch_rows}_over_java_store", value, "none", names[1])


def record_size(body_size: int) -> float:
    """Bytes of a record with such a body in the log."""
    return measure_batch(column_batch(1_000, body_size)._replace(append_crc=True))[0] / 1_000
