"""The Spark session of the benchmarks, and the fastest source and sink that Python can have.

`run_on` starts a script again under the release of Spark that has a Kafka connector, in a
virtualenv that is made when it is missing. `null_arrow` reads and writes Arrow batches that are
made once in each worker, so no connector can be faster. Its tasks have their input acknowledged at
once, as ours have (`pyspark_rmq/tcp_quickack.py`), so that no ratio above 1 is possible but by
noise.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # 4.0, on which nothing is measured
    DataSourceStreamArrowWriter = DataSourceArrowWriter

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Unknown to this release."""


from pyspark_rmq import spark_conf
from pyspark_rmq.columns import default_schema
from pyspark_rmq.tcp_quickack import QuickAckInput

VALUE: Final = "value BINARY"
# What Spark's Kafka source has.
SEVEN: Final = (
    "key STRING, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT"
)
# What our source has by default.
DEFAULT: Final = default_schema()
SCHEMAS: Final = {"value": VALUE, "seven": SEVEN, "default": DEFAULT}
BATCH_SIZE: Final = 4 << 20
BATCH_ROWS: Final = 50_000
_FIRST_US: Final = 1_700_000_000_000_000


def run_on(release: str) -> None:
    """Return under that release of Spark; otherwise start this very command again under it."""
    from tests.spark.spark_versions import spark_python

    if importlib.metadata.version("pyspark") == release:
        return
    python = str(spark_python(release))
    os.execv(python, [python, *sys.argv])


def new_session(
    jars: Sequence[Path] = (), cores: int = 2, *, is_tuned: bool = False, **settings: str
) -> SparkSession:
    """`local[2]`, 4 GB, no UI, quiet; the null source is registered.

    `is_tuned`: with `pyspark_rmq.spark_conf()`, for all competitors in the session.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("pyspark-rmq benchmarks")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", ",".join(map(str, jars)))
    )
    if is_tuned:
        builder = builder.config(map=spark_conf())
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(NullSource)
    return session


class NullSource(DataSource):  # type: ignore[misc]
    """`null_arrow`.

    rows         of the whole read, or of a streaming query
    rowsPerBatch of a micro-batch; default all at once
    size         of a value
    partitions   tasks of a batch
    columns      value, seven (those of Kafka's source) or default (those of ours)
    """

    @classmethod
    def name(cls) -> str:
        return "null_arrow"

    def schema(self) -> str:
        return SCHEMAS[self.options.get("columns", "value")]

    def reader(self, schema: Any) -> NullReader:
        return NullReader(dict(self.options), schema)

    def streamReader(self, schema: Any) -> NullStreamReader:
        return NullStreamReader(dict(self.options), schema)

    def writer(self, schema: Any, overwrite: bool) -> NullWriter:
        return NullWriter()

    def streamWriter(self, schema: Any, overwrite: bool) -> NullStreamWriter:
        return NullStreamWriter()


class _NullReading:
    """What the two readers share."""

    def __init__(self, options: dict[str, str], schema: Any) -> None:
        self.rows = int(options.get("rows", "100000"))
        self.rows_per_batch = int(options.get("rowsperbatch", str(self.rows)))
        self.size = int(options.get("size", "100"))
        self.tasks = int(options.get("partitions", "2"))
        self.columns = tuple(field.name for field in schema.fields)

    def split(self, rows: int) -> list[InputPartition]:
        ends = [rows * number // self.tasks for number in range(self.tasks + 1)]
        return [InputPartition(ends[n + 1] - ends[n]) for n in range(self.tasks)]

    def batches(self, rows: int) -> Iterator[Any]:
        prepared = _prepared(self.size, self.columns)
        while rows > 0:
            batch = prepared if rows >= prepared.num_rows else prepared.slice(0, rows)
            rows -= batch.num_rows
            yield batch


class NullReader(QuickAckInput, _NullReading, DataSourceReader):  # type: ignore[misc]
    """For `spark.read`."""

    def partitions(self) -> list[InputPartition]:
        return self.split(self.rows)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.batches(partition.value)


class NullStreamReader(  # type: ignore[misc]
    QuickAckInput, _NullReading, DataSourceStreamReader, SupportsTriggerAvailableNow
):
    """For `spark.readStream`; there is always a next batch until `rows` are read."""

    def prepareForTriggerAvailableNow(self) -> None:
        """There is one end, from the start."""

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"rows": min(self.rows, start["rows"] + self.rows_per_batch)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self.split(end["rows"] - start["rows"])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.batches(partition.value)


class _NullWriting:
    """Drops batches without reading them."""

    def __init__(self) -> None:
        # An object without any state would be rebuilt without `__setstate__`.
        self.row_count = 0

    def write(self, iterator: Iterable[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class NullWriter(QuickAckInput, _NullWriting, DataSourceArrowWriter):  # type: ignore[misc]
    """For `df.write`."""


class NullStreamWriter(QuickAckInput, _NullWriting, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """For `df.writeStream`."""

    def commit(self, messages: Any, batchId: int) -> None:
        """Nothing to make visible."""

    def abort(self, messages: Any, batchId: int) -> None:
        """Nothing to take back."""


_cache: dict[tuple[int, tuple[str, ...]], Any] = {}


def _prepared(size: int, columns: tuple[str, ...]) -> Any:
    found = _cache.get((size, columns))
    if found is None:
        # A worker is forked for many tasks; what it imported is none of their garbage.
        import gc

        found = _cache[size, columns] = prepared_batch(size, columns)
        gc.collect()
        gc.freeze()
    return found


def prepared_batch(size: int, columns: Sequence[str]) -> Any:
    """A batch with these columns and values of `size` bytes."""
    import numpy as np
    import pyarrow as pa

    rows = max(1, min(BATCH_ROWS, BATCH_SIZE // size))
    body = np.random.default_rng(7).bytes(size)
    numbers = np.arange(rows, dtype=np.int64)
    times = pa.array(_FIRST_US + numbers, pa.timestamp("us", tz="UTC"))
    zeros = pa.array(np.zeros(rows, np.int32))
    makers = {
        "key": lambda: pa.array([f"key-{number}" for number in range(rows)], pa.string()),
        "value": lambda: pa.array([body] * rows, pa.binary()),
        "topic": lambda: pa.array(["benchmark"] * rows, pa.string()),
        "tags": lambda: pa.nulls(rows, pa.string()),
        "broker": lambda: pa.array(["broker-a"] * rows, pa.string()),
        "partition": lambda: zeros,
        "offset": lambda: pa.array(numbers),
        "timestamp": lambda: times,
        "timestampType": lambda: zeros,
        "bornTimestamp": lambda: times,
        "msgId": lambda: pa.array([f"{number:032X}" for number in range(rows)], pa.string()),
        "reconsumeTimes": lambda: zeros,
    }
    return pa.record_batch([makers[name]() for name in columns], list(columns))
