"""`df.writeStream`: tasks stage or send, the driver publishes. Thin.

Spark makes a new object of this for every batch and another one for its commit, in another process:
what they share travels in the commit messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_rmq.prompt_input import PromptInput
from pyspark_rmq.sink import publication
from pyspark_rmq.sink.commit_message import RmqCommitMessage, results_of
from pyspark_rmq.sink.outgoing_columns import batches_of_rows
from pyspark_rmq.sink.sink_columns import SinkColumns
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task_context import stream_identity
from pyspark_rmq.sink.task_result import TaskIdentity
from pyspark_rmq.sink.task_writer import write_task

# Spark 4.0 gives rows, later ones record batches.
_Base = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
TAKES_ROWS = _Base is DataSourceStreamWriter


class RmqStreamWriter(PromptInput, _Base):  # type: ignore[misc,valid-type]
    """Micro-batches of a query."""

    def __init__(
        self, options: SinkOptions, columns: SinkColumns, guarantee: str, schema: Any
    ) -> None:
        self._options = options
        self._columns = columns
        self._guarantee = guarantee
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> RmqCommitMessage:
        """In a task."""
        identity = self.identity()
        if TAKES_ROWS and self._schema is not None:
            iterator = batches_of_rows(iterator, to_arrow_schema(self._schema))
        return RmqCommitMessage(
            write_task(iterator, self._options, self._columns, self._guarantee, identity)
        )

    def identity(self) -> TaskIdentity:
        """Who this task is."""
        return stream_identity(self._options)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """On the driver, once every task is done; again after a crash."""
        publication.publish_batch(self._options, results_of(messages))

    def abort(self, messages: list[Any], batchId: int) -> None:
        """On the driver, when the batch failed or the query is stopped; tasks may still run."""
        publication.drop_batch(self._options, results_of(messages))
