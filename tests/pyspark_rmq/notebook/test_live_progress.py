"""What `watch` shows where; queries are in tests/spark."""

from __future__ import annotations

import contextlib
import os
import pty
from typing import Any

import pytest

from pyspark_rmq.notebook.live_progress import reason_of, watch
from pyspark_rmq.testing import processed

FAILED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source initialize source: \
Traceback (most recent call last):
  File "/x/short_errors.py", line 28, in call
    raise found.with_traceback(None) from None
broker_core.errors.InvalidArgument: option where is for spark.read: filter a stream
See docs/errors.md#where-on-a-stream

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
UnboundLocalError: cannot access local variable 'reader'
 SQLSTATE: 38000"""


class Query:
    """A query that reports batches, and ends after the last one."""

    name = "orders"
    id = "1"

    def __init__(self, count: int) -> None:
        self._left = count
        self.recentProgress: list[dict[str, Any]] = []

    def awaitTermination(self, timeout: float) -> bool:
        self._left -= 1
        lag = {"totalLag": 1, "lag": {"a-topic-with-a-long-name": {"b": {"0": self._left}}}}
        self.recentProgress.append(
            {
                "timestamp": f"2024-05-31T10:00:0{len(self.recentProgress)}.000Z",
                "batchId": len(self.recentProgress),
                "numInputRows": 1_000_000,
                "inputRowsPerSecond": 100_000.0,
                "processedRowsPerSecond": 200_000.0,
                "durationMs": {"triggerExecution": 1500},
                "sources": [{"latestOffset": lag}],
            }
        )
        return self._left == 0


def test_a_line_of_a_terminal_is_never_broken_before_its_end() -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as out:
        view = watch(Query(4), out=out)
    # Everything fits into the buffer of the terminal; its end is an error.
    found = b""
    with contextlib.suppress(OSError):
        while piece := os.read(master, 65_536):
            found += piece
    os.close(master)
    written = found.decode()
    assert (view.state, view.rows) == ("ended", 4_000_000)
    *lines, last = written.split("\r\x1b[K")
    # A terminal without a size has 80 columns.
    assert len(lines) == 5
    assert max(map(len, lines)) < 80
    assert "1,000,000 rows, 100,000/s in, 200,000/s out, 1,500 ms" in lines[2]
    assert last == f"{view.line()}\r\n"


def test_the_reason_of_a_failure_is_the_error_and_not_the_traceback() -> None:
    assert reason_of(Exception(FAILED)) == (
        "InvalidArgument: option where is for spark.read: filter a stream"
    )
    plain = "[STREAM_FAILED] Query [id = 1] terminated with exception: boom SQLSTATE: P0001"
    assert reason_of(Exception(f"\n{plain}\n=== Streaming Query ===")) == "boom SQLSTATE: P0001"
    assert reason_of(Exception("")) == "Exception('')"


@pytest.mark.parametrize("query", [None, "orders", 7])
def test_what_is_no_query(query: Any) -> None:
    for wait in (watch, processed):
        with pytest.raises(TypeError, match=r"takes a query, as start\(\) of a stream returns it"):
            wait(query)
