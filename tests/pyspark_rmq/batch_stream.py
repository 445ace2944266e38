"""A stream that plans and reads its batches as Spark would, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from broker_core.runtime.clock import SystemClock
from pyspark_rmq import connections
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.offset_planning import plan_tasks, ranges_between
from pyspark_rmq.source.rows.message_batches import arrow_schema
from pyspark_rmq.source.rows.range_reader import Task, read_task
from pyspark_rmq.source.stream_session import Limits, StreamSession

VALUE = (ChosenColumn("value", "value"),)


class BatchStream:
    """A query that reads its batches as Spark would."""

    def __init__(self, name_server: str, topic: str) -> None:
        given = {
            "rmq.namesrv.addr": name_server,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        self.options = SourceOptions.parse(given).for_stream()
        self.connected = connections.connect(self.options.connection)
        self.session = StreamSession(self.connected.client, self.options)
        self.position = self.connected.call(self.session.initial())
        self.seen: list[bytes] = []

    def read(self) -> int:
        """Take the next batch; how many rows it had."""
        end = self.connected.call(self.session.latest(self.position, Limits(), may_wait=False))
        if end is self.position:
            return 0
        tasks = plan_tasks(ranges_between(self.position, end), end.row_sizes)
        batches = [
            batch
            for task in tasks
            for batch in read_task(Task(tuple(task), dict(end.stores)), self.options, VALUE)
        ]
        rows: list[dict[str, Any]] = pa.Table.from_batches(batches, arrow_schema(VALUE)).to_pylist()
        self.position = end
        self.seen += [row["value"] for row in rows]
        return len(rows)

    def read_until(self, count: int) -> None:
        """Read on; fails when so many rows do not come."""
        clock = SystemClock()
        until = clock.monotonic() + 300
        while len(self.seen) < count:
            assert clock.monotonic() < until, f"{len(self.seen)} of {count} rows"
            self.read()

    def close(self) -> None:
        self.connected.call(self.session.close())
        connections.close_connections()
