"""What every benchmark shares: medians, warm memory and column batches to feed a store with."""

from __future__ import annotations

import asyncio
import importlib
import statistics
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring.results import info, ratio
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.host_address import encode_host

__all__ = ["column_batch", "info", "median", "ratio", "run_loop", "seconds", "touch_memory"]

HOST = encode_host(("127.0.0.1", 10911))
ROUNDS = 5


def median(take: Callable[[], float], rounds: int = ROUNDS) -> float:
    """Median of several measurements."""
    return statistics.median(take() for _ in range(rounds))


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def touch_memory(root: Path, size: int) -> None:
    """Write and remove a file, so that the next files get pages that were in use a moment ago.

    A virtual machine gets a page from its host when it is first touched, which takes ten times as
    long as to fill the page, and may give free pages back within seconds. Filling new files
    would then measure the hypervisor, and more so for formats with larger records. A machine that
    keeps its memory is not affected. So this is called right before each measured section, for
    every competitor.
    """
    block = bytes(1 << 20)
    with (root / "touch").open("wb", buffering=0) as file:
        for _ in range(size >> 20):
            file.write(block)
    (root / "touch").unlink()


def run_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run on uvloop where it is installed, as a broker does, else on asyncio's own loop."""
    try:
        new_loop = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        new_loop = asyncio.new_event_loop
    loop = new_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def column_batch(
    rows: int, body_size: int, queues: int = 1, *, topic: str = "bench", keyed: bool = False
) -> ColumnBatch:
    """`rows` messages of `body_size` bytes, round robin over the queues."""
    offsets = np.arange(rows + 1, dtype=np.int64) * body_size
    keys = None
    if keyed:
        texts = [b"k%d" % row for row in range(rows)]
        ends = np.zeros(rows + 1, dtype=np.int64)
        np.cumsum([len(text) for text in texts], out=ends[1:])
        keys = (b"".join(texts), ends, 8)
    return ColumnBatch(
        count=rows,
        queues=tuple((topic.encode(), queue) for queue in range(queues)),
        queue_index=None if queues == 1 else np.arange(rows, dtype=np.int32) % queues,
        body=(np.random.default_rng(7).bytes(rows * body_size), offsets, 8),
        keys=keys,
        born_timestamp=int(time.time() * 1000),
        born_host=HOST,
        store_host=HOST,
    )
