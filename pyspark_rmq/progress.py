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
    """The lag in a progress report of Spark (`query.lastProgress`), also over Spark Connect.

    None for other sources, before the first batch, when Spark has no report yet, and for a report
    of another form.
    """
    if not isinstance(progress, Mapping):
        return None
    queues: list[QueueLag] = []
    is_ours = False
    for source in progress.get("sources") or ():
        found = _lag_report(source)
        if found is not None:
            is_ours = True
            queues += found
    if not is_ours:
        return None
    return QueryLag(
        str(progress.get("name") or progress.get("id") or "query"),
        int(progress.get("batchId") or 0),
        int(total_of(progress, "numInputRows")),
        total_of(progress, "processedRowsPerSecond"),
        tuple(queues),
    )


def total_of(progress: Mapping[str, Any], name: str) -> float:
    """A figure of a report; over Spark Connect only the sources have it."""
    found = progress.get(name)
    if found is None:
        sources = [each for each in progress.get("sources") or () if isinstance(each, Mapping)]
        return sum(_number(source.get(name)) for source in sources)
    return _number(found)


def _number(value: object) -> float:
    """Spark reports NaN and infinity for batches that took no time."""
    if not isinstance(value, int | float) or not 0 <= value < 1e15:
        return 0.0
    return float(value)


def _lag_report(source: Any) -> list[QueueLag] | None:
    """Queues of one source; None unless it is ours."""
    if not isinstance(source, Mapping):
        return None
    latest = source.get("latestOffset")
    try:
        found = json.loads(latest) if isinstance(latest, str) else latest
        if not isinstance(found, Mapping) or "totalLag" not in found:
            return None
        return [
            QueueLag(topic, broker, int(queue_id), int(rows))
            for topic, of_topic in found["lag"].items()
            for broker, of_broker in of_topic.items()
            for queue_id, rows in of_broker.items()
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        # A report of another version.
        return None


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
