"""Range reads into Arrow columns."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring.measure import ROUNDS, column_batch, seconds
from benchmarks.measuring.results import ratio, row
from benchmarks.measuring.rounds import compare, figure, ratio_of
from benchmarks.store_parts.append import BATCH_ROWS, NO_FLUSH
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


@contextmanager
def readers(
    root: Path, body_size: int, columns: Mapping[str, int], rows: int
) -> Iterator[Callable[[str], float]]:
    """A call that reads all rows with the columns of that name; messages per second.

    Through `read_columns` and `to_arrow`, 4 MB at a time.
    """
    batch = column_batch(BATCH_ROWS[body_size], body_size)
    rows_per_read = min(READ_BYTES // body_size, READ_ROWS_MAX)
    directory = root / f"read-{body_size}"
    with MessageStore.open(directory, NO_FLUSH) as store:
        for _ in range(rows // batch.count):
            store.append_batch(batch)
        end = store.offsets("bench", 0)[1]

        def read(wanted: int) -> None:
            for start in range(0, end, rows_per_read):
                until = min(start + rows_per_read, end)
                to_arrow(store.read_columns("bench", 0, start, until, wanted), until - start)

        yield lambda name: end / seconds(lambda: read(columns[name]))
    shutil.rmtree(directory)


def run(root: Path, quick: bool) -> None:
    """Seven columns as a Spark source needs them, and the value alone."""
    rows = {100: 500_000 if quick else 1_000_000, 1024: 100_000 if quick else 400_000}
    for body_size, count in rows.items():
        columns = {"seven columns": SEVEN, "value only": VALUE}
        with readers(root, body_size, columns, count) as rate:
            found = compare(list(columns), rate, ROUNDS)
        seven, value = found.values()
        for name, one in found.items():
            row("store, range read to Arrow", name, "page cache", "msg/s", one, x=body_size)
        if body_size == 100:
            least = figure([6e6] * len(seven.values))
            ratio("read_100B_over_6M_msg_per_s", ratio_of(seven, least), ">=1", "a fixed rate")
            more = ratio_of(value, seven)
            ratio("read_value_only_over_7_columns_100B", more, ">=1", "seven columns")
        else:
            least = figure([2e9 / body_size] * len(seven.values))
            ratio("read_1KiB_over_2_GB_per_s", ratio_of(seven, least), ">=1", "a fixed rate")
