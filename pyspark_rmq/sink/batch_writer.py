"""`df.write`: all rows of a job become visible together, or none do."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter

from pyspark_rmq.short_errors import short_errors
from pyspark_rmq.sink import publication
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.commit_message import RmqCommitMessage, results_of
from pyspark_rmq.sink.task.context import job_identity
from pyspark_rmq.sink.task.sink_columns import SinkColumns
from pyspark_rmq.sink.task.writer import write_task
from pyspark_rmq.tcp_quickack import QuickAckInput


class RmqBatchWriter(QuickAckInput, DataSourceArrowWriter):  # type: ignore[misc]
    """Writer of one job. Spark pickles it for tasks and for the commit."""

    def __init__(self, options: SinkOptions, columns: SinkColumns, guarantee: str) -> None:
        self._options = options
        self._columns = columns
        self._guarantee = guarantee
        self._job = f"job-{uuid.uuid4().hex}"

    @short_errors
    def write(self, iterator: Iterator[Any]) -> RmqCommitMessage:
        """In a task."""
        identity = job_identity(self._options, self._job)
        return RmqCommitMessage(
            write_task(iterator, self._options, self._columns, self._guarantee, identity)
        )

    @short_errors
    def commit(self, messages: list[Any]) -> None:
        """On the driver, after all tasks."""
        publication.publish_batch(self._options, results_of(messages))

    def abort(self, messages: list[Any]) -> None:
        """On the driver, when the job failed."""
        publication.abort_batch(self._options, results_of(messages))
