"""`deduplicate`: finds the copies of rows that the at-least-once sink sent more than once.

Runs on the driver, before a batch: reads the names of all its rows and lists the offsets of rows
that were read before, in this batch or in earlier ones. List and names are part of the position
that Spark stores, so a replay skips exactly the same rows, whatever retention has deleted since.
Tasks only skip the listed offsets.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from broker_core import MessageQueue, column_names, errors, to_arrow
from pyspark_rmq.connections import Connected
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.offset_planning import QueueRange, ranges_between
from pyspark_rmq.source.offsets.stream_position import Repeats, StreamOffset
from pyspark_rmq.source.rows.message_batches import Records
from pyspark_rmq.source.rows.range_reader import Task, batches_of, check_stores
from pyspark_rmq.source.rows.seen_rows import SeenRows

_log = logging.getLogger(__name__)

# A batch ends where its list is full, so that positions stay small.
RANGES_MAX: Final = 4_096

Pairs = list[tuple[int, int]]


class _Names:
    """Offsets and property texts of a run; no bodies."""

    _WANTED: Final = column_names.QUEUE_OFFSET | column_names.PROPERTIES

    def batch(self, run: Records, queue: MessageQueue) -> Any:
        """(queue, offsets, property texts)"""
        decoded = to_arrow(run.columns(queue, self._WANTED), run.count)
        return queue, decoded.column("queue_offset").to_numpy(), decoded.column("properties")


def deduplicated(
    start: StreamOffset, end: StreamOffset, options: SourceOptions, connected: Connected
) -> StreamOffset:
    """The end of the batch, or of its first part, with the repeats to skip."""
    try:
        seen = SeenRows.from_json(start.seen_rows, options.deduplicate_batches)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.InvalidArgument(
            f"the rows in a position cannot be used ({error!r:.80}); use the checkpoint directory"
            " that belongs to the query, or a new one"
        ) from None
    task = Task(tuple(ranges_between(start, end)), dict(end.stores))
    repeats, reached = survey(task, seen, options, connected, RANGES_MAX)
    if seen.unknowable:
        _log.warning(
            "%d rows belong to batches that are too old to know whether they were read before:"
            " raise deduplicateBatches (%d)",
            seen.unknowable,
            options.deduplicate_batches,
        )
    seen.forget_old()
    return end._replace(queues={**end.queues, **reached}, repeats=repeats, seen_rows=seen.to_json())


def survey(
    task: Task, seen: SeenRows, options: SourceOptions, connected: Connected, ranges_max: int
) -> tuple[Repeats, dict[MessageQueue, int]]:
    """Offsets of copies per queue, and how far each queue was read. Stops early when there are more
    than `ranges_max` ranges of copies. The task has one range per queue.
    """
    check_stores(task, options, connected)
    repeats: dict[MessageQueue, Pairs] = {}
    reached = {part.queue: part.until for part in task.ranges}
    with contextlib.closing(batches_of(task, options, connected, _Names())) as batches:
        for queue, offsets, texts in batches:
            copies = offsets[seen.repeats(queue.topic, texts)]
            if len(copies):
                repeats[queue] = _joined(repeats.get(queue, []), copies)
            if sum(map(len, repeats.values())) >= ranges_max:
                # Ranges are read in order: those before this one to their ends, the others not.
                queues = [part.queue for part in task.ranges]
                place = queues.index(queue)
                reached.update({part.queue: part.start for part in task.ranges[place + 1 :]})
                reached[queue] = int(offsets[-1]) + 1
                break
    return {queue: tuple(pairs) for queue, pairs in sorted(repeats.items())}, reached


def batch_repeats(
    ranges: Sequence[QueueRange], options: SourceOptions, connected: Connected
) -> Repeats:
    """The copies within the ranges of a batch read."""
    seen = SeenRows(options.deduplicate_batches)
    found, _ = survey(Task(tuple(ranges), {}), seen, options, connected, sys.maxsize)
    return found


def _joined(pairs: Pairs, offsets: Any) -> Pairs:
    """`pairs` and the ranges of `offsets`, which are larger."""
    if not len(offsets):
        return pairs
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    firsts = offsets[np.concatenate(([0], cuts))].tolist()
    lasts = offsets[np.concatenate((cuts - 1, [len(offsets) - 1]))].tolist()
    found = [(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]
    if pairs and pairs[-1][1] == found[0][0]:
        found[0] = (pairs[-1][0], found[0][1])
        pairs = pairs[:-1]
    return pairs + found
