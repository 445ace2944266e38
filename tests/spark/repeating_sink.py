"""One task of the at-least-once sink, also as a process that a test may kill."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pyspark_rmq.sink.sink_columns import find_columns
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task_result import TaskIdentity
from pyspark_rmq.sink.task_writer import write_task

ROWS = 6_000
_ROWS_AT_ONCE = 100


def values_of(batch: int) -> list[str]:
    return [f"{batch}-{number}" for number in range(ROWS)]


def write(name_server: str, topic: str, batch: int, **more: str) -> None:
    """All rows of partition 0 of a batch; every attempt begins at another queue."""
    options = SinkOptions.parse({"rmq.namesrv.addr": name_server, "topic": topic, **more})
    columns = find_columns([("value", "string"), ("key", "string")], options)
    identity = TaskIdentity("query", batch, "run", 0, 0, 0)
    write_task(_batches(batch), options, columns, "at_least_once", identity)


def _batches(batch: int) -> Iterator[Any]:
    values = values_of(batch)
    for first in range(0, ROWS, _ROWS_AT_ONCE):
        part = values[first : first + _ROWS_AT_ONCE]
        yield pa.RecordBatch.from_pydict({"value": part, "key": part})


if __name__ == "__main__":
    _, name_server, topic, batch, *options = sys.argv
    write(name_server, topic, int(batch), **dict(option.split("=", 1) for option in options))
