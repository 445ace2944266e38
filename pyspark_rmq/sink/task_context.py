"""Who a task is, as far as Spark tells it."""

from __future__ import annotations

import re
from typing import Any

from pyspark import TaskContext

from broker_core import errors
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task_result import TaskIdentity

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_TAGS = "spark.job.tags"
_GROUP = "spark.jobGroup.id"
# Spark tags every execution with the session it belongs to, and each start of a query has a session
# of its own. The root is the execution of the query's batch, whatever is executed inside of it.
_ROOT_SESSION = re.compile(r"spark-session-([0-9a-f-]{36})-execution-root-id-(\d+)")
_ROOT = "spark.sql.execution.root.id"
# What sinks of jobs with a batchId belong to: no query has it for an id.
JOBS = "jobs that give a batchId"


def stream_identity(options: SinkOptions) -> TaskIdentity:
    """Of a task of `df.writeStream`: the query of the checkpoint, its batch, its run."""
    context = _context()
    query, batch, run = *map(context.getLocalProperty, (_QUERY, _BATCH)), _run(context)
    if not query or not batch or not run:
        raise errors.InvalidArgument(
            f"Spark does not say which batch this is ({_QUERY}={query}, {_BATCH}={batch},"
            f" run {run}): nothing can be promised about it"
        )
    return TaskIdentity(
        options.sink_id or query,
        int(batch),
        run,
        *_attempt(context),
        lineage=options.lineage,
        writer=query,
        query=query,
    )


def batch_identity(options: SinkOptions, job: str) -> TaskIdentity:
    """Of a task of `df.write`: the job, or with a sinkId the batch of it."""
    context = _context()
    batch, query = context.getLocalProperty(_BATCH), context.getLocalProperty(_QUERY)
    run = _run(context)
    if not options.sink_id:
        return TaskIdentity(job, 0, job, *_attempt(context), once=True)
    if options.batch_id is not None:
        attempt = _attempt(context)
        return TaskIdentity(options.sink_id, options.batch_id, job, *attempt, query=JOBS)
    if not batch or not run or not query:
        raise errors.InvalidArgument(
            "option sinkId of df.write needs the number of the batch: give batchId, or write"
            " inside foreachBatch, where Spark numbers them"
        )
    # A function may write several times, each under a sinkId of its own.
    return TaskIdentity(
        options.sink_id, int(batch), run, *_attempt(context), lineage=options.lineage,
        is_inner=True, writer=f"{options.sink_id}/{query}", query=query,
    )  # fmt: skip


def _run(context: Any) -> str:
    """What changes with every start of a query, and what the functions of a query cannot change.

    Code inside `foreachBatch` may set the job group, which Spark uses for the run.
    """
    root = context.getLocalProperty(_ROOT)
    tags = _ROOT_SESSION.findall(context.getLocalProperty(_TAGS) or "")
    sessions = sorted({session for session, execution in tags if execution == root})
    if sessions:
        # Two when the function writes a frame of another session than that of its query.
        return "+".join(sessions)
    return str(context.getLocalProperty(_GROUP) or "")


def _context() -> Any:
    context = TaskContext.get()
    if context is None:
        raise errors.InvalidArgument("not inside a Spark task")
    return context


def _attempt(context: Any) -> tuple[int, int, int]:
    return context.partitionId(), context.attemptNumber(), context.taskAttemptId()
