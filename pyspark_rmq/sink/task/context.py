"""Identity of a task, read from Spark's task context."""

from __future__ import annotations

import re
from typing import Any

from pyspark import TaskContext

from broker_core import errors
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.result import JOBS, TaskIdentity

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_TAGS = "spark.job.tags"
_GROUP = "spark.jobGroup.id"
# Spark tags every execution with its session, and each start of a query has a session of its own.
# The root execution is that of the query's batch; executions inside of it have the same root.
_ROOT_SESSION = re.compile(r"spark-session-([0-9a-f-]{36})-execution-root-id-(\d+)")
_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ROOT = "spark.sql.execution.root.id"


def stream_identity(options: SinkOptions) -> TaskIdentity:
    """Identity of a task of `df.writeStream`: query, batch and run."""
    context = _context()
    query, batch, run = *map(context.getLocalProperty, (_QUERY, _BATCH)), _run(context)
    if not query or not batch or not run:
        raise errors.InvalidArgument(
            f"Spark does not report which batch this is ({_QUERY}={query}, {_BATCH}={batch},"
            f" run {run}), so the sink cannot give any guarantee"
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


def job_identity(options: SinkOptions, job: str) -> TaskIdentity:
    """Identity of a task of `df.write`: the job, or with a `sinkId` its batch."""
    context = _context()
    batch, query = context.getLocalProperty(_BATCH), context.getLocalProperty(_QUERY)
    if not options.sink_id:
        return TaskIdentity(job, 0, job, *_attempt(context), once=True)
    if options.batch_id is not None:
        # Inside foreachBatch the batches belong to that query: another one, which starts over, may
        # give the same number to rows that look the same.
        return TaskIdentity(
            options.sink_id,
            options.batch_id,
            job,
            *_attempt(context),
            query=query or JOBS,
            start=_run(context) if query else "",
        )
    run = _run(context)
    if not batch or not query:
        raise errors.InvalidArgument(
            "option sinkId of df.write needs the number of the batch: give batchId, or write"
            " inside foreachBatch, where Spark numbers them. Over Spark Connect that number does"
            " not reach the tasks of foreachBatch: give batchId, too, the one that your function"
            " is called with"
        )
    if not run:
        raise errors.InvalidArgument(
            "Spark's job tags and job group do not tell which start of the query this is: code"
            " inside foreachBatch has called clearJobTags and set the job group. Remove only your"
            " own tags (removeJobTag), or give batchId"
        )
    # A function of foreachBatch may write several times, each time with another sinkId.
    return TaskIdentity(
        options.sink_id,
        int(batch),
        run,
        *_attempt(context),
        lineage=options.lineage,
        is_inner=True,
        writer=f"{options.sink_id}/{query}",
        query=query,
        start=run,
    )


def _run(context: Any) -> str:
    """The run: changes with every start of a query, and not within one. Empty if it is not known.

    Spark stores the run id in the job group, but code inside `foreachBatch` may overwrite that. So
    the session of the root execution is used, which Spark tags. Where that tag is gone, only a job
    group that has the form of a run id counts.
    """
    root = context.getLocalProperty(_ROOT)
    tags = _ROOT_SESSION.findall(context.getLocalProperty(_TAGS) or "")
    sessions = sorted({session for session, execution in tags if execution == root})
    if sessions:
        # Two sessions if the function writes a DataFrame of another session than its query.
        return "+".join(sessions)
    group = str(context.getLocalProperty(_GROUP) or "")
    return group if _RUN_ID.fullmatch(group) else ""


def _context() -> Any:
    context = TaskContext.get()
    if context is None:
        raise errors.InvalidArgument("not inside a Spark task")
    return context


def _attempt(context: Any) -> tuple[int, int, int]:
    return context.partitionId(), context.attemptNumber(), context.taskAttemptId()
