"""Lag of streaming queries, from Spark's progress reports, and figures of the sink's batches.

    spark.streams.addListener(lag_listener(print))
    sink_batches(str(query.id))

The source adds the lag of each queue to every progress report, so no broker is asked. The sink
stores the figures of each batch on the driver's machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pyspark_rmq.sink.batch_log import SinkBatch, noted_batches

_BAR_WIDTH: Final = 20


class QueueLag(NamedTuple):
    """Unread rows of one queue."""

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
        """Unread rows of all queues."""
        return sum(queue.rows for queue in self.queues)

    @property
    def longest(self) -> int:
        """Unread rows of the queue with the largest lag."""
        return max((queue.rows for queue in self.queues), default=0)

    def line(self) -> str:
        """One line of text with a bar that is full when there is no lag."""
        share = self.rows / (self.rows + self.total) if self.total else 1.0
        full = round(share * _BAR_WIDTH)
        bar = "█" * full + "·" * (_BAR_WIDTH - full)
        speed = f"{self.rows_per_second:,.0f} rows/s"
        return f"{self.name} batch {self.batch_id} [{bar}] {speed}, {self.total:,} waiting"


def lag_of(progress: Mapping[str, Any] | None) -> QueryLag | None:
    """From a progress report as Spark gives it (`query.lastProgress`).

    None for other sources, and before the first batch, when Spark has no report yet.
    """
    if progress is None:
        return None
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
        """Listens to all queries of the session."""

        def onQueryStarted(self, event: Any) -> None:
            """No report."""

        def onQueryProgress(self, event: Any) -> None:
            """Report the lag, if the query reads rmq."""
            lag = lag_of(json.loads(event.progress.json))
            if lag is not None:
                report(lag)

        def onQueryIdle(self, event: Any) -> None:
            """No report."""

        def onQueryTerminated(self, event: Any) -> None:
            """No report."""

    return LagListener()
