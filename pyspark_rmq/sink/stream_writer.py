"""`df.writeStream`: tasks stage or send rows, the driver publishes them.

Spark creates one writer for the tasks of a batch and another one, in another process, for its
commit. They share only the commit messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_rmq.short_errors import short_errors
from pyspark_rmq.sink import publication
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.commit_message import RmqCommitMessage, results_of
from pyspark_rmq.sink.task.context import stream_identity
from pyspark_rmq.sink.task.outgoing_columns import batches_of_rows
from pyspark_rmq.sink.task.result import TaskIdentity
from pyspark_rmq.sink.task.sink_columns import SinkColumns
from pyspark_rmq.sink.task.writer import write_task
from pyspark_rmq.tcp_quickack import QuickAckInput

# Spark 4.0 passes rows, later versions pass record batches.
_Base = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
TAKES_ROWS = _Base is DataSourceStreamWriter


class RmqStreamWriter(QuickAckInput, _Base):  # type: ignore[misc,valid-type]
    """Writer of the micro-batches of a query."""

    def __init__(
        self, options: SinkOptions, columns: SinkColumns, guarantee: str, schema: Any
    ) -> None:
        self._options = options
        self._columns = columns
        self._guarantee = guarantee
        self._schema = schema

    @short_errors
    def write(self, iterator: Iterator[Any]) -> RmqCommitMessage:
        """In a task."""
        identity = self.identity()
        if TAKES_ROWS and self._schema is not None:
            iterator = batches_of_rows(iterator, to_arrow_schema(self._schema))
        return RmqCommitMessage(
            write_task(iterator, self._options, self._columns, self._guarantee, identity)
        )

    def identity(self) -> TaskIdentity:
        """Identity of the current task."""
        return stream_identity(self._options)

    @short_errors
    def commit(self, messages: list[Any], batchId: int) -> None:
        """On the driver, after all tasks; again after a crash."""
        publication.publish_batch(self._options, results_of(messages))

    def abort(self, messages: list[Any], batchId: int) -> None:
        """On the driver, when the batch failed or the query stops; tasks may still be running."""
        publication.abort_batch(self._options, results_of(messages))
