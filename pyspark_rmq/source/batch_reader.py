"""`spark.read`: a range of every queue, fixed when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_rmq import connections
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.batch_plan import plan_batch
from pyspark_rmq.source.range_reader import read_task


class RmqBatchReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads on executors."""

    def __init__(self, options: SourceOptions, columns: Sequence[ChosenColumn]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> list[InputPartition]:
        """The tasks of the read."""
        connected = connections.connect(self._options.connection)
        tasks = connected.call(plan_batch(connected.client, self._options))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task."""
        if partition is None or partition.value is None:
            # Spark makes one task of no tasks.
            return iter(())
        return read_task(partition.value, self._options, self._columns)
