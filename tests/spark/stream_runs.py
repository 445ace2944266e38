"""Runs of a streaming query into a list, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Less than a test is given in all: a query that hangs says so.
QUERY_LIMIT_S = 360
# Spark gives the Python process of a source ten seconds to start, which cannot be set and which a
# busy machine may not have; the query fails before it has read anything.
LATE = "failed to connect back"
LATE_MAX = 10


def patiently(attempt: Callable[[], Any]) -> Any:
    """What a query comes to; begun again while Spark did not wait for its Python process."""
    from pyspark.errors import PySparkException

    for _ in range(LATE_MAX):
        try:
            return attempt()
        except PySparkException as failure:
            if LATE not in str(failure):
                raise
    return attempt()


def run_to_end(start: Callable[[], Any]) -> Any:
    """Start a query that ends by itself; the query that ended. Raises what it failed with."""

    def attempt() -> Any:
        query = start()
        try:
            await_end(query)
        finally:
            query.stop()
        return query

    return patiently(attempt)


def run_to_now(start: Callable[[], Any]) -> Any:
    """Start a query that goes on; the query, when it has what is there."""

    def attempt() -> Any:
        query = start()
        try:
            query.processAllAvailable()
        except BaseException:
            query.stop()
            raise
        return query

    return patiently(attempt)


def await_end(query: Any) -> None:
    """Wait for a query that ends by itself; raises what it failed with."""
    if not query.awaitTermination(QUERY_LIMIT_S):
        status = query.status
        query.stop()
        raise AssertionError(f"the query still runs after {QUERY_LIMIT_S} s: {status}")


class StreamRuns:
    """Starts the same query again and again on one checkpoint; keeps every batch it was given."""

    def __init__(
        self, spark: Any, checkpoint: Path, options: Mapping[str, str], schema: str | None = None
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.options = dict(options)
        self._schema = schema
        self.batches: list[tuple[int, list[Any]]] = []

    @property
    def rows(self) -> list[Any]:
        return [row for _, rows in self.batches for row in rows]

    @property
    def values(self) -> list[str]:
        return [bytes(row["value"]).decode() for row in self.rows]

    @property
    def sizes(self) -> list[int]:
        return [len(rows) for _, rows in self.batches]

    def start(self, **trigger: Any) -> Any:
        """A running query."""
        reader = self._spark.readStream.format("rmq").options(**self.options)
        if self._schema is not None:
            reader = reader.schema(self._schema)
        writer = (
            reader.load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self._checkpoint))
        )
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, **trigger: Any) -> Any:
        """Run to the end of what is there; the query that ended."""
        return run_to_end(lambda: self.start(**(trigger or {"availableNow": True})))

    def _take(self, frame: Any, batch_id: int) -> None:
        rows = frame.collect()
        if self.batches and self.batches[-1][0] == batch_id:
            # The query was stopped before it noted that this batch was done. Spark promises a
            # batch at least once; that it is the same one is our promise.
            assert rows == self.batches[-1][1]
            return
        self.batches.append((batch_id, rows))
