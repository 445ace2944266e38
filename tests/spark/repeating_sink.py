"""One task of the at-least-once sink, also as a process that a test may kill.

The process holds its last rows back until its input ends, so that it cannot be done too early.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.result import TaskIdentity
from pyspark_rmq.sink.task.sink_columns import find_columns
from pyspark_rmq.sink.task.writer import write_task

ROWS = 6_000
_ROWS_AT_ONCE = 100


def values_of(batch: int) -> list[str]:
    return [f"{batch}-{number}" for number in range(ROWS)]


def write(name_server: str, topic: str, batch: int, *, holds: bool = False, **more: str) -> None:
    """All rows of partition 0 of a batch; every attempt begins at another queue."""
    options = SinkOptions.parse({"rmq.namesrv.addr": name_server, "topic": topic, **more})
    columns = find_columns([("value", "string"), ("key", "string")], options)
    identity = TaskIdentity("query", batch, "run", 0, 0, 0)
    write_task(_batches(batch, holds=holds), options, columns, "at_least_once", identity)


def _batches(batch: int, *, holds: bool) -> Iterator[Any]:
    values = values_of(batch)
    for first in range(0, ROWS, _ROWS_AT_ONCE):
        if holds and first + _ROWS_AT_ONCE == ROWS:
            sys.stdin.read()
        part = values[first : first + _ROWS_AT_ONCE]
        yield pa.RecordBatch.from_pydict({"value": part, "key": part})


if __name__ == "__main__":
    _, name_server, topic, batch, *options = sys.argv
    given = dict(option.split("=", 1) for option in options)
    write(name_server, topic, int(batch), holds=True, **given)
