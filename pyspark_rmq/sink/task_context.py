"""Who a task is, as far as Spark tells it."""

from __future__ import annotations

from typing import Any

from pyspark import TaskContext

from broker_core import errors
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task_result import TaskIdentity

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"


def stream_identity(options: SinkOptions) -> TaskIdentity:
    """Of a task of `df.writeStream`: the query of the checkpoint, its batch, its run."""
    context = _context()
    query, batch, run = (context.getLocalProperty(name) for name in (_QUERY, _BATCH, _RUN))
    if not query or not batch or not run:
        raise errors.InvalidArgument(
            f"Spark does not say which batch this is ({_QUERY}={query}, {_BATCH}={batch},"
            f" {_RUN}={run}): nothing can be promised about it"
        )
    return TaskIdentity(
        options.sink_id or query,
        int(batch),
        run,
        *_attempt(context),
        lineage=options.lineage,
        writer=query,
    )


def batch_identity(options: SinkOptions, job: str) -> TaskIdentity:
    """Of a task of `df.write`: the job, or with a sinkId the batch of it."""
    context = _context()
    batch, run = context.getLocalProperty(_BATCH), context.getLocalProperty(_RUN)
    if not options.sink_id:
        return TaskIdentity(job, 0, job, *_attempt(context), once=True)
    if options.batch_id is not None:
        return TaskIdentity(options.sink_id, options.batch_id, job, *_attempt(context))
    if not batch or not run:
        raise errors.InvalidArgument(
            "option sinkId of df.write needs the number of the batch: give batchId, or write"
            " inside foreachBatch, where Spark numbers them"
        )
    # A function may write several times, each under a sinkId of its own.
    writer = f"{options.sink_id}/{context.getLocalProperty(_QUERY)}"
    return TaskIdentity(
        options.sink_id, int(batch), run, *_attempt(context), is_inner=True, writer=writer
    )


def _context() -> Any:
    context = TaskContext.get()
    if context is None:
        raise errors.InvalidArgument("not inside a Spark task")
    return context


def _attempt(context: Any) -> tuple[int, int, int]:
    return context.partitionId(), context.attemptNumber(), context.taskAttemptId()
