"""Identity and result of a task."""

from __future__ import annotations

from broker_core import MessageQueue
from pyspark_rmq.sink.task.result import TaskIdentity, joined_ranges

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)


def test_every_attempt_gives_its_rows_the_same_names() -> None:
    first = TaskIdentity("S", 7, "run", 2, 0, 100)
    again = first._replace(run="next run", attempt_number=1, task_attempt_id=200)
    assert first.row_name == again.row_name == "S:7:2"
    assert first._replace(writer="query").row_name == "query:7:2"
    assert first._replace(partition=3).row_name != first.row_name


def test_brokers_get_no_attempt() -> None:
    identity = TaskIdentity("S", 7, "run", 2, 0, 100, "lineage", query="q")
    found = identity.batch_identity
    assert (found.sink, found.batch, found.run, found.lineage) == ("S", 7, "run", "lineage")
    assert (found.query, found.once) == ("q", False)
    assert identity._replace(partition=9, task_attempt_id=1).batch_identity == found


def test_ranges_of_several_tasks() -> None:
    assert joined_ranges([{A: (5, 8, 3)}, {A: (10, 12, 2), B: (0, 1, 1)}, {}]) == {
        A: (5, 12, 5),
        B: (0, 1, 1),
    }
