"""Range reads into Arrow columns."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.measure import column_batch, seconds
from benchmarks.results import ratio, row
from benchmarks.rounds import Figure, figure, ratio_of
from benchmarks.store_append import BATCH_ROWS, NO_FLUSH
from broker_core import MessageStore
from broker_core.codec.records.arrow_columns import to_arrow
from broker_core.codec.records.column_names import (
    KEYS,
    MICROS,
    QUEUE_ID,
    QUEUE_OFFSET,
    STORE_TIMESTAMP,
    TAGS,
    TOPIC,
    VALUE,
)

SEVEN = VALUE | TOPIC | TAGS | KEYS | QUEUE_ID | QUEUE_OFFSET | STORE_TIMESTAMP | MICROS
# About what one Arrow batch for Spark holds: 4 MB or 50,000 rows.
READ_BYTES, READ_ROWS_MAX = 4 << 20, 50_000


def read_rates(root: Path, body_size: int, wanted: int, rows: int, queues: int = 1) -> Figure:
    """Messages per second through `read_columns` and `to_arrow`, 4 MB at a time."""
    batch = column_batch(BATCH_ROWS[body_size], body_size, queues)
    batches = rows // batch.count
    rows_per_read = min(READ_BYTES // body_size, READ_ROWS_MAX)
    directory = root / f"read-{body_size}-{wanted}-{queues}"
    with MessageStore.open(directory, NO_FLUSH) as store:
        for _ in range(batches):
            store.append_batch(batch)
        end = store.offsets("bench", 0)[1]

        def read() -> None:
            for start in range(0, end, rows_per_read):
                until = min(start + rows_per_read, end)
                to_arrow(store.read_columns("bench", 0, start, until, wanted), until - start)

        seconds(read)
        rates = figure(end / seconds(read) for _ in range(5))
    shutil.rmtree(directory)
    return rates


def run(root: Path, quick: bool) -> None:
    """Seven columns as a Spark source needs them, and the value alone."""
    rows = {100: 500_000 if quick else 1_000_000, 1024: 100_000 if quick else 400_000}
    for body_size, count in rows.items():
        seven = read_rates(root, body_size, SEVEN, count)
        value = read_rates(root, body_size, VALUE, count)
        for name, one in (("seven columns", seven), ("value only", value)):
            row("store, range read to Arrow", name, "page cache", "msg/s", one, x=body_size)
        if body_size == 100:
            least = figure([6e6] * len(seven.values))
            ratio("read_100B_over_6M_msg_per_s", ratio_of(seven, least), ">=1", "a fixed rate")
            more = ratio_of(value, seven)
            ratio("read_value_only_over_7_columns_100B", more, ">=1", "seven columns")
        else:
            least = figure([2e9 / body_size] * len(seven.values))
            ratio("read_1KiB_over_2_GB_per_s", ratio_of(seven, least), ">=1", "a fixed rate")
