"""Lag of streaming queries: from Spark's progress reports to numbers, a line of text, a callback.

    spark.streams.addListener(lag_listener(print))
    sink_batches(str(query.id))

The source puts what waits in each queue into the report of every batch, so nobody has to be asked.
The sink writes down on the driver's machine what became of each batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pyspark_rmq.sink.batch_log import SinkBatch, noted_batches

_BAR_WIDTH: Final = 20


class QueueLag(NamedTuple):
    """What waits in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    rows: int


class QueryLag(NamedTuple):
    """One report of one query."""

    name: str
    batch_id: int
    rows: int
    """Rows of the batch."""
    rows_per_second: float
    queues: tuple[QueueLag, ...]

    @property
    def total(self) -> int:
        """Rows that wait in all queues."""
        return sum(queue.rows for queue in self.queues)

    @property
    def longest(self) -> int:
        """Rows that wait in the queue with the most of them."""
        return max((queue.rows for queue in self.queues), default=0)

    def line(self) -> str:
        """For people: a bar that is full when nothing waits."""
        share = self.rows / (self.rows + self.total) if self.total else 1.0
        full = round(share * _BAR_WIDTH)
        bar = "█" * full + "·" * (_BAR_WIDTH - full)
        speed = f"{self.rows_per_second:,.0f} rows/s"
        return f"{self.name} batch {self.batch_id} [{bar}] {speed}, {self.total:,} waiting"


def lag_of(progress: Mapping[str, Any]) -> QueryLag | None:
    """From a progress report as Spark gives it (`query.lastProgress`); None for other sources."""
    queues: list[QueueLag] = []
    is_ours = False
    for source in progress["sources"]:
        latest = source["latestOffset"]
        found = json.loads(latest) if isinstance(latest, str) else latest
        if not isinstance(found, Mapping) or "totalLag" not in found:
            continue
        is_ours = True
        queues += [
            QueueLag(topic, broker, int(queue_id), rows)
            for topic, of_topic in found["lag"].items()
            for broker, of_broker in of_topic.items()
            for queue_id, rows in of_broker.items()
        ]
    if not is_ours:
        return None
    return QueryLag(
        str(progress["name"] or progress["id"]),
        int(progress["batchId"]),
        int(progress["numInputRows"]),
        float(progress["processedRowsPerSecond"] or 0.0),
        tuple(queues),
    )


def sink_batches(sink: str) -> list[SinkBatch]:
    """Rows, bytes, retries and offsets of the last batches of a sink, oldest first.

    `sink` is the id of the query (`str(query.id)`) or its `sinkId`. Only batches that were
    committed on this machine by this user are known.
    """
    return noted_batches(sink)


def lag_listener(report: Callable[[QueryLag], object]) -> Any:
    """A `StreamingQueryListener` that calls `report` after every batch of a query that reads rmq.

    Pass `lambda lag: print(lag.line())` for a line on the console.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class LagListener(StreamingQueryListener):  # type: ignore[misc]
        """Hears of every query of the session."""

        def onQueryStarted(self, event: Any) -> None:
            """Nothing to tell yet."""

        def onQueryProgress(self, event: Any) -> None:
            """A batch is done, or there was none."""
            lag = lag_of(json.loads(event.progress.json))
            if lag is not None:
                report(lag)

        def onQueryIdle(self, event: Any) -> None:
            """Nothing has changed."""

        def onQueryTerminated(self, event: Any) -> None:
            """Nothing waits any more."""

    return LagListener()
