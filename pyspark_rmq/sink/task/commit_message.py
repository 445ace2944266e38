"""A task's result in the form that Spark carries from a task to the driver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_rmq.sink.task.result import TaskResult


class RmqCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """Carries a `TaskResult`."""

    def __init__(self, result: TaskResult) -> None:
        self.result = result


def results_of(messages: Iterable[Any]) -> list[TaskResult]:
    """Results of the tasks that ended; tasks of an aborted batch may have no message."""
    return [message.result for message in messages if message is not None]
