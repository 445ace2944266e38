"""`spark.read`: a range of every queue, fixed when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_rmq import connections
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.payloads.read_columns import ReadColumn
from pyspark_rmq.short_errors import short_errors, short_row_errors
from pyspark_rmq.source.batch_plan import batch_ranges, batch_tasks
from pyspark_rmq.source.dead_letter_check import DeadLetterCheck
from pyspark_rmq.source.description import describe, described_columns
from pyspark_rmq.source.rows.predicates import Predicate, from_filters
from pyspark_rmq.source.rows.range_reader import read_task
from pyspark_rmq.source.rows.repeat_survey import batch_repeats
from pyspark_rmq.tcp_quickack import QuickAckInput


class RmqBatchReader(QuickAckInput, DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads on executors."""

    def __init__(self, options: SourceOptions, columns: Sequence[ReadColumn]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._pushed: tuple[Predicate, ...] = ()

    @short_errors
    def partitions(self) -> list[InputPartition]:
        """The tasks of the read."""
        connected = connections.connect(self._options.connection)
        client, options = connected.client, self._options
        ranges = connected.call(batch_ranges(client, options))
        connected.call(DeadLetterCheck(client, options).check())
        # Before the conditions, which apply to rows without copies.
        repeats = batch_repeats(ranges, options, connected) if options.deduplicates else {}
        tasks = connected.call(batch_tasks(client, options, ranges, self._pushed, repeats))
        return [InputPartition(task) for task in tasks]

    @short_row_errors
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task."""
        if partition is None or partition.value is None:
            # Spark starts one task if there are no partitions.
            return iter(())
        return read_task(partition.value, self._options, self._columns)


class RmqPushdownReader(RmqBatchReader):
    """Uses Spark's filters to read less.

    A separate class, because Spark rejects readers with `pushFilters` while its setting is off.
    """

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        """Remember filters that help; Spark applies all of them again."""
        self._pushed = from_filters(filters, self._options.column_names)
        return iter(filters)


class RmqDescribeReader(QuickAckInput, DataSourceReader):  # type: ignore[misc]
    """`describe`: one task that asks the brokers."""

    def __init__(self, options: SourceOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)

    @short_row_errors
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows, with the columns of the schema."""
        connected = connections.connect(self._options.connection)
        rows = connected.call(describe(connected.client, self._options))
        places = described_columns(self._options.describe, self._names)
        return iter([tuple(row[place] for place in places) for row in rows])
