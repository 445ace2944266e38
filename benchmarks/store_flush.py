"""Sync flush: group commit against the disk's own sync rate, and a 256 MB append group."""

from __future__ import annotations

import asyncio
import mmap
import os
import shutil
import time
from pathlib import Path

from benchmarks.measure import column_batch, info, median, ratio, run_loop
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
    """All rates in turns, so that a noisy moment hits them alike."""
    store = MessageStore.open(root / "flush", StoreConfig())
    await store.start()
    rates: dict[str, list[float]] = {"raw": [], "1": [], "16": [], "256": []}
    counts = {1: 500, 16: 8_000, 256: 60_000} if quick else {1: 2_000, 16: 20_000, 256: 150_000}
    for _ in range(5):
        rates["raw"].append(raw_sync_rate(root, counts[1]))
        for producers, count in counts.items():
            rates[str(producers)].append(await put_rate(store, producers, count))
    store.close()
    raw, one, sixteen, many = (median(iter(rates[key]).__next__) for key in rates)
    info(
        f"sync flush: raw {raw:.0f} syncs/s; 1 producer {one:.0f}, 16 producers {sixteen:.0f}, "
        f"256 producers {many:.0f} msg/s"
    )
    ratio("sync_flush_1_producer_over_raw_sync", one / raw, ">=0.7")
    ratio("sync_flush_256_producers_over_1", many / one, ">=50")


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

    plain: list[float] = []
    groups: list[float] = []
    for _ in range(5):
        plain.append(plain_write(root, data))
        groups.append(run_loop(one_group()))
    group_s, plain_s = median(iter(groups).__next__), median(iter(plain).__next__)
    size = len(data) / 1e6
    info(f"append group of {size:.0f} MB durable in {group_s:.2f} s, plain write {plain_s:.2f} s")
    ratio("append_group_256MB_over_plain_write_and_sync", group_s / plain_s, "<=1.3")
