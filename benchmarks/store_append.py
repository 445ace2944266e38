"""Batch append into the page cache: against memcpy, against fixed rates, against the Java store."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import column_batch, info, median, ratio, seconds, touch_memory
from broker_core import FlushDiskType, MessageStore, StoreConfig
from broker_core.codec.native import measure_batch

# Nothing is synced meanwhile, as in the Java figure: the append itself is measured.
NO_FLUSH = StoreConfig(
    flush_disk_type=FlushDiskType.ASYNC_FLUSH,
    flush_interval_ms=1_000_000_000,
    dispatch_checkpoint_interval_ms=1_000_000_000,
    page_cache_busy_timeout_ms=60_000,
)
BATCH_ROWS = {100: 20_000, 1024: 4_000}
ROUND_BYTES = 200 << 20
# As many bytes as the store writes at once.
WRITE_SIZE = 512 << 10


def append_rate(
    root: Path, body_size: int, round_bytes: int = ROUND_BYTES, config: StoreConfig = NO_FLUSH
) -> tuple[float, float]:
    """Messages per second of the append calls, and with dispatch (queues built) included."""
    batch = column_batch(BATCH_ROWS[body_size], body_size)
    batches = max(round_bytes // (batch.count * (body_size + 120)), 2)
    rates: list[tuple[float, float]] = []

    async def rounds() -> None:
        store = MessageStore.open(root / f"append-{body_size}", config)
        await store.start()
        for _ in range(6):
            started = time.perf_counter()
            spent = 0.0
            for _ in range(batches):
                spent += seconds(lambda: store.append_batch(batch))
                await asyncio.sleep(0)  # lets the store dispatch
            total = time.perf_counter() - started
            rates.append((batches * batch.count / spent, batches * batch.count / total))
        store.close()

    asyncio.run(rounds())
    shutil.rmtree(root / f"append-{body_size}")
    # The first round meets a cold allocator and cold memory.
    appended = iter(rate[0] for rate in rates[1:])
    dispatched = iter(rate[1] for rate in rates[1:])
    return median(lambda: next(appended)), median(lambda: next(dispatched))


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

    def write(number: int) -> float:
        with (root / f"written-{number}").open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            started = time.perf_counter()
            for _ in range(size // len(block)):
                file.write(block)
            return size / (time.perf_counter() - started)

    # Files stay until all are written: a log does not get back the memory it has just filled.
    numbers = iter(range(6))
    touch_memory(root, 7 * size)
    write(next(numbers))
    rate = median(lambda: write(next(numbers)))
    for number in range(6):
        (root / f"written-{number}").unlink()
    return rate


def run(root: Path, quick: bool) -> None:
    """Our append with the codec in use."""
    size = ROUND_BYTES >> 1 if quick else ROUND_BYTES
    touch_memory(root, 8 * size)
    small, small_dispatched = append_rate(root, 100, size)
    large, large_dispatched = append_rate(root, 1024, size)
    copy = memcpy_rate(64 << 20)
    info(
        f"append {small / 1e6:.2f} M msg/s at 100 B ({small_dispatched / 1e6:.2f} with dispatch), "
        f"{large * 1024 / 1e9:.2f} GB/s at 1 KiB ({large_dispatched * 1024 / 1e9:.2f} with "
        f"dispatch); memcpy {copy / 1e9:.1f} GB/s"
    )
    ratio("append_100B_over_3M_msg_per_s", small / 3e6, ">=1")
    ratio("append_1KiB_over_1_GB_per_s", large * 1024 / 1e9, ">=1")
    info(
        f"append over memcpy: {small * 100 / copy:.3f} at 100 B, {large * 1024 / copy:.3f} at 1 KiB"
    )


def run_pure_python(root: Path, quick: bool) -> None:
    """The same in a process that is told not to use the native codec."""
    size = 40 << 20
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from benchmarks.store_append import append_rate;"
        f"print(append_rate(Path(sys.argv[2]), 100, {size})[0])"
    )
    project = str(Path(__file__).resolve().parent.parent)
    answer = subprocess.run(
        [sys.executable, "-c", script, project, str(root)],
        env={**os.environ, "RMQ_CODEC": "python"},
        capture_output=True,
        text=True,
        check=True,
    )
    rate = float(answer.stdout)
    info(f"append in pure Python {rate / 1e6:.2f} M msg/s at 100 B")
    ratio("append_100B_pure_python_over_0.5M_msg_per_s", rate / 5e5, ">=1")


def run_java(root: Path, quick: bool) -> None:
    """Beside Apache's own store (rocketmq-store 5.5.0), same file size, same kind of flush."""
    from benchmarks.java_store import java_store_append, java_store_unavailable

    reason = java_store_unavailable()
    if reason is not None:
        info(f"no comparison with the Java store: {reason}")
        return
    # As an operator gets them: ASYNC_FLUSH with its defaults on both sides.
    default = StoreConfig(flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    never = {"flushIntervalCommitLog": 1_000_000_000}
    for body_size, count in ((100, 1_000_000), (1024, 200_000)):
        count = count // 2 if quick else count
        # The same bytes per round, and the same kind of memory to put them into, on both sides.
        round_bytes = count * (body_size + 120)
        touch_memory(root, 7 * round_bytes)
        ours, _ = append_rate(root, body_size, round_bytes, config=default)
        touch_memory(root, 7 * round_bytes)
        java = java_store_append(body_size, count, 100, directory=root).messages_per_s
        info(
            f"{body_size} B, ASYNC_FLUSH with its defaults: Java store in batches of 100 "
            f"{java / 1e6:.2f} M msg/s, ours {ours / 1e6:.2f} M msg/s"
        )
        record = measure_batch(column_batch(1_000, body_size)._replace(append_crc=True))[0] / 1_000
        limit = plain_write_rate(root, round_bytes) / record
        info(
            f"{body_size} B: writing such records and nothing else {limit / 1e6:.2f} M msg/s,"
            f" {limit / java:.1f} times Java's store"
        )
        if not quick:
            bare = java_store_append(body_size, count, 100, directory=root, config=never)
            info(f"Java store without any flush {bare.messages_per_s / 1e6:.2f} M msg/s")
        name = "100B" if body_size == 100 else "1KiB"
        ratio(f"append_{name}_over_java_store", ours / java, ">=5")
