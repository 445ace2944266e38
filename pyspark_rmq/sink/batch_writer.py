"""`df.write`: all rows of a job become visible together, or none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter

from pyspark_rmq.prompt_input import PromptInput
from pyspark_rmq.sink import publication
from pyspark_rmq.sink.commit_message import RmqCommitMessage, results_of
from pyspark_rmq.sink.sink_columns import SinkColumns
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task_context import batch_identity
from pyspark_rmq.sink.task_writer import write_task


class RmqBatchWriter(PromptInput, DataSourceArrowWriter):  # type: ignore[misc]
    """One job; Spark hands copies of this object to its tasks and to the commit."""

    def __init__(self, options: SinkOptions, columns: SinkColumns, guarantee: str) -> None:
        self._options = options
        self._columns = columns
        self._guarantee = guarantee
        self._job = f"job-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[Any]) -> RmqCommitMessage:
        """In a task."""
        identity = batch_identity(self._options, self._job)
        return RmqCommitMessage(
            write_task(iterator, self._options, self._columns, self._guarantee, identity)
        )

    def commit(self, messages: list[Any]) -> None:
        """On the driver, once every task is done."""
        publication.publish_batch(self._options, results_of(messages))

    def abort(self, messages: list[Any]) -> None:
        """On the driver, when the job failed."""
        publication.drop_batch(self._options, results_of(messages))
