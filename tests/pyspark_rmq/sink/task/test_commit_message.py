"""Results of tasks on their way to the driver."""

from __future__ import annotations

import pytest

from pyspark_rmq.sink.task.result import TaskIdentity, TaskResult

pytest.importorskip("pyspark")


def test_tasks_of_an_aborted_batch_may_have_no_message() -> None:
    from pyspark_rmq.sink.task.commit_message import RmqCommitMessage, results_of

    result = TaskResult(TaskIdentity("S", 1, "run", 0, 0, 0), "exactly_once", 3)
    assert results_of([None, RmqCommitMessage(result), None]) == [result]
    assert results_of([]) == []
