"""Opening: an empty store, a clean large one, and one that must be recovered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.measuring.measure import column_batch, median, seconds
from benchmarks.measuring.results import info, ratio, row
from benchmarks.measuring.rounds import figure
from benchmarks.store_parts.append import NO_FLUSH
from broker_core import MessageStore, StoreConfig

GIB = 1 << 30
CHILD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from broker_core import MessageStore
started = time.perf_counter()
store = MessageStore.open(sys.argv[2])
spent = time.perf_counter() - started
status = open("/proc/self/status").read()
print(spent, int(status.split("RssAnon:")[1].split()[0]) / 1024)
store.close()
"""


def open_in_child(directory: Path) -> tuple[float, float]:
    """Seconds of `MessageStore.open` in a fresh process, and its own memory afterwards in MB."""
    project = str(Path(__file__).resolve().parents[2])
    answer = subprocess.run(
        [sys.executable, "-c", CHILD, project, str(directory)],
        capture_output=True,
        text=True,
        check=True,
    )
    spent, peak = map(float, answer.stdout.split())
    return spent, peak


def fill(directory: Path, size: int, body_size: int = 1024) -> int:
    """Append until the log has about `size` bytes; returns the log's end."""
    batch = column_batch(4_000, body_size, queues=4)
    with MessageStore.open(directory, NO_FLUSH) as store:
        while store.log_range[1] < size:
            store.append_batch(batch)
        return store.log_range[1]


def run(root: Path, quick: bool) -> None:
    """Empty and clean stores."""
    number = iter(range(100))

    def empty() -> float:
        directory = root / f"empty-{next(number)}"
        spent = seconds(lambda: MessageStore.open(directory, StoreConfig()).close())
        shutil.rmtree(directory)
        return spent

    empty()
    starts = figure(empty() for _ in range(5))
    row("store, open of an empty one", "open and close", "same process", "ms", starts.scaled(1000))
    start = starts.median
    ratio("start_of_empty_store_over_50_ms", start / 0.050, "<=1")
    size = (2 if quick else 10) * GIB
    directory = root / "clean"
    end = fill(directory, size)
    figures = [open_in_child(directory) for _ in range(5)]
    times, peaks = figure(one[0] for one in figures), figure(one[1] for one in figures)
    spent, peak = times.median, peaks.median
    table = f"store, open of {end / GIB:.1f} GiB after a clean stop"
    row(table, "time", "new process", "ms", times.scaled(1000))
    row(table, "private memory", "new process", "MB", peaks)
    ratio(f"open_of_clean_{size // GIB}_GiB_store_over_1_s", spent, "<=1")
    small = root / "small"
    fill(small, 16 << 20)
    small_peak = median(lambda: open_in_child(small)[1], rounds=3)
    ratio("memory_of_open_large_over_small_store", peak / small_peak, "<=1.2")


def crashed_copy(store: Path, directory: Path, *, settled: bool) -> None:
    """What a kill right after the first start would leave: no checkpoint, `abort` in place.

    `settled`: the bytes of the copy are on the disk, as those of a SYNC_FLUSH store are. A plain
    copy leaves all of them to be written, and 1 GiB of zeros for the prepared file besides, which
    a store never writes; recovery would wait for that and not for its own work.
    """
    shutil.copytree(store, directory)
    (directory / "dispatch_checkpoint").unlink()
    (directory / "abort").write_text("0")
    if settled:
        os.sync()


def run_recovery(root: Path, quick: bool) -> None:
    """A log of 1 GiB whose every record must be checked and dispatched again."""
    end = fill(root / "full", GIB)

    def rate(*, settled: bool) -> float:
        directory = root / "crashed"
        crashed_copy(root / "full", directory, settled=settled)
        spent = open_in_child(directory)[0]
        shutil.rmtree(directory)
        return end / spent

    unwritten = rate(settled=False)
    rates = figure(rate(settled=True) for _ in range(5))
    row("store, recovery of 1 GiB", "every record", "files on the disk", "MB/s", rates.scaled(1e-6))
    info(f"recovery at {unwritten / 1e6:.0f} MB/s when 2 GiB must be written to the disk first")
    ratio("recovery_over_400_MB_per_s", rates.median / 4e8, ">=1")
