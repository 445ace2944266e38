"""`write()` of a task: stages or sends its rows and returns a result for the driver."""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from broker_core import SinkClient, errors
from pyspark_rmq.connections import Connected, connect
from pyspark_rmq.frozen_heap import freeze_once
from pyspark_rmq.sink.guarantee import refuse_weaker_guarantee
from pyspark_rmq.sink.sink_options import EXACTLY_ONCE, SinkOptions
from pyspark_rmq.sink.task.message_targets import (
    MessageTarget,
    QueueTarget,
    StagingTarget,
    TopicQueues,
)
from pyspark_rmq.sink.task.outgoing_columns import ColumnReader
from pyspark_rmq.sink.task.queue_selection import QueueSelection
from pyspark_rmq.sink.task.result import TaskIdentity, TaskResult
from pyspark_rmq.sink.task.sink_columns import SinkColumns

_log = logging.getLogger(__name__)
_ABORT_TIMEOUT_S: Final = 10.0


def write_task(
    batches: Iterable[Any],
    options: SinkOptions,
    columns: SinkColumns,
    guarantee: str,
    identity: TaskIdentity,
) -> TaskResult:
    """Write the record batches of one task. With exactly_once nothing is visible yet."""
    freeze_once()
    if guarantee != EXACTLY_ONCE:
        refuse_weaker_guarantee(options, identity)
    connected = connect(options.connection)
    target = _target(connected, options, guarantee, identity)
    row_name = "" if guarantee == EXACTLY_ONCE else identity.row_name
    reader = ColumnReader(columns, options, row_name)
    row_count = size = 0
    topic_rows: Counter[str] = Counter()
    under_way: Any = None
    keeping = connected.begin(target.keep())
    try:
        for batch in batches:
            for messages in reader.messages(batch):
                row_count += messages.row_count
                topic_rows[messages.topic] += messages.row_count
                size += messages.size
                if under_way is not None:
                    under_way.result()
                # Sent in the background while Spark hands over the next rows.
                under_way = connected.begin(target.append(messages))
        if under_way is not None:
            under_way.result()
        parts, ranges = connected.call(target.finish())
    except BaseException:
        if under_way is not None:
            under_way.cancel()
        with contextlib.suppress(errors.RmqError):
            connected.call(target.abort(), _ABORT_TIMEOUT_S)
        raise
    finally:
        keeping.cancel()
    if reader.oversize_count:
        _log.warning(
            "%d rows of partition %d, batch %d are larger than maxMessageSize and were %s",
            reader.oversize_count,
            identity.partition,
            identity.batch,
            f"cut for {options.oversize_topic}" if options.oversize_topic else "dropped",
        )
    return TaskResult(
        identity,
        guarantee,
        row_count,
        size,
        reader.oversize_count,
        parts,
        ranges,
        target.retry_count,
        target.digest,
        tuple(sorted(topic_rows.items())),
    )


def _target(
    connected: Connected, options: SinkOptions, guarantee: str, identity: TaskIdentity
) -> MessageTarget:
    queues = TopicQueues(connected.client, options)
    # Random start: otherwise all small batches would go to the first queue.
    selection = QueueSelection(random.randrange(1 << 16))
    if guarantee == EXACTLY_ONCE:
        sink = SinkClient(
            connected.client,
            retry_for_ms=options.retry_for_ms,
            local_staging=options.short_circuit != "off",
        )
        return StagingTarget(
            sink,
            queues,
            selection,
            identity.batch_identity,
            compresses=options.compresses,
            requires_files=options.short_circuit == "on",
        )
    return QueueTarget(connected.client, queues, selection, options)
