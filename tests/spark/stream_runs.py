"""Runs of a streaming query into a list, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

Batch = tuple[int, list[Any]]

# Less than a test is given in all: a query that hangs says so.
QUERY_LIMIT_S = 360


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
        self.batches: list[Batch] = []

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
        query = self.start(**(trigger or {"availableNow": True}))
        try:
            await_end(query)
        finally:
            query.stop()
        return query

    def _take(self, frame: Any, batch_id: int) -> None:
        self.batches.append((batch_id, frame.collect()))
