"""Sync flush: group commit against the disk's own sync rate, and a 256 MB append group."""

from __future__ import annotations

import asyncio
import mmap
import os
import shutil
import time
from pathlib import Path

from benchmarks.measuring.measure import column_batch, run_loop, touch_memory
from benchmarks.measuring.results import ratio, row
from benchmarks.measuring.rounds import compare, figure, order, ratio_of
from broker_core import Message, MessageStore, StoreConfig
from broker_core.storage.staging.staging_area import encode_template

GROUP_RUN_ROWS = 900
GROUP_BYTES = 256 << 20
MESSAGE = Message("bench", bytes(100))


def raw_sync_rate(root: Path, count: int) -> float:
    """Syncs per second of the same pattern without a store: 250 bytes further each time."""
    path = root / "raw"
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    os.posix_fallocate(file, 0, 64 << 20)
    os.fsync(file)
    with mmap.mmap(file, 64 << 20) as mapped:
        started = time.perf_counter()
        for number in range(count):
            mapped[number * 250 : number * 250 + 250] = bytes([number % 255 + 1]) * 250
            os.fdatasync(file)
        rate = count / (time.perf_counter() - started)
    os.close(file)
    path.unlink()
    return rate


async def put_rate(store: MessageStore, producers: int, count: int) -> float:
    """Messages per second; a producer sends its next message when the last one is durable."""
    loop = asyncio.get_running_loop()
    finished = loop.create_future()
    waiting = count

    def send(failure: BaseException | None) -> None:
        nonlocal count, waiting
        if failure is not None:
            raise failure
        waiting -= 1
        if waiting == 0:
            finished.set_result(None)
        if count > 0:
            count -= 1
            store.when_durable(store.append(MESSAGE), send)

    started = time.perf_counter()
    waiting += producers
    total = count
    for _ in range(producers):
        send(None)
    await finished
    return total / (time.perf_counter() - started)


async def measure(root: Path, quick: bool) -> None:
    """All rates in turns, so that a noisy moment affects all of them."""
    store = MessageStore.open(root / "flush", StoreConfig())
    await store.start()
    rates: dict[str, list[float]] = {"raw": [], "1": [], "16": [], "256": []}
    counts = {1: 500, 16: 8_000, 256: 60_000} if quick else {1: 2_000, 16: 20_000, 256: 150_000}
    for number in range(5):
        for index in order(number, len(rates)):
            name = list(rates)[index]
            if name == "raw":
                rates[name].append(raw_sync_rate(root, counts[1]))
            else:
                rates[name].append(await put_rate(store, int(name), counts[int(name)]))
    store.close()
    found = {name: figure(taken) for name, taken in rates.items()}
    row("store, SYNC_FLUSH, 100 B", "the disk's own syncs", "250 B each", "1/s", found["raw"])
    for name in ("1", "16", "256"):
        row("store, SYNC_FLUSH, 100 B", f"{name} producers", "group commit", "msg/s", found[name])
    raw = ratio_of(found["1"], found["raw"])
    ratio("sync_flush_1_producer_over_raw_sync", raw, ">=0.7", "raw syncs")
    many = ratio_of(found["256"], found["1"])
    ratio("sync_flush_256_producers_over_1", many, ">=50", "1 producer")


def run(root: Path, quick: bool) -> None:
    """Producers against the disk."""
    run_loop(measure(root, quick))


def plain_write(root: Path, data: memoryview) -> float:
    """Seconds to write and sync the same number of bytes in 1 MiB pieces."""
    path = root / "plain"
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    os.posix_fallocate(file, 0, len(data))
    os.fsync(file)
    started = time.perf_counter()
    for start in range(0, len(data), 1 << 20):
        os.pwrite(file, data[start : start + (1 << 20)], start)
    os.fdatasync(file)
    spent = time.perf_counter() - started
    os.close(file)
    path.unlink()
    return spent


def run_group(root: Path, quick: bool) -> None:
    """One atomic group of 256 MB, durable, beside a plain sequential write of the same bytes.

    In runs of about a megabyte, as writers of the sink stage them.
    """
    batch = column_batch(GROUP_RUN_ROWS, 1024, queues=4)
    size = len(encode_template(batch).records)
    runs = [encode_template(batch) for _ in range(GROUP_BYTES // size)]
    data = memoryview(b"".join(run.records for run in runs))

    async def one_group() -> float:
        store = MessageStore.open(root / "group", StoreConfig())
        await store.start()
        await store.put(MESSAGE)
        started = time.perf_counter()
        result = await store.put_group(runs)
        spent = time.perf_counter() - started
        if not result.ok:
            raise RuntimeError(result.remark)
        store.close()
        shutil.rmtree(root / "group")
        return spent

    def take(name: str) -> float:
        touch_memory(root, 2 * len(data))
        return plain_write(root, data) if name == "plain write" else run_loop(one_group())

    found = compare(["append group", "plain write"], take, 5)
    for name, one in found.items():
        table = f"store, {len(data) / 1e6:.0f} MB durable"
        row(table, name, "synced before it counts", "s", one)
    value = ratio_of(found["append group"], found["plain write"])
    ratio("append_group_256MB_over_plain_write_and_sync", value, "<=1.3", "plain write")
