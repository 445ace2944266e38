"""How much a batch reads and how it is split into tasks. Pure and deterministic.

A task costs tens of milliseconds, so there are as few as the bytes justify: one for a small batch,
then up to as many as queues, more only for large batches. The ranges of all queues, in order, form
one line that is cut into equal parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker_core import MessageQueue, errors
from pyspark_rmq.source.offsets.stream_position import StreamOffset

# A task of less than this takes longer to start than to run.
TASK_SIZE_MIN: Final = 8 << 20
# There are more tasks than queues only when a task would have more than this.
TASK_SIZE_MAX: Final = 512 << 20
ROW_SIZE_DEFAULT: Final = 512


class QueueRange(NamedTuple):
    """Messages `start` to `until` (exclusive) of one queue. Plain values, pickled for tasks."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    until: int

    @property
    def queue(self) -> MessageQueue:
        """Which queue."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def rows(self) -> int:
        """Number of offsets."""
        return self.until - self.start


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
    """The ranges of a batch from `start` to `end`; depends on nothing else."""
    ranges = []
    for queue in sorted(end.queues):
        until = end.queues[queue]
        begin = end.begins.get(queue, start.queues.get(queue))
        if begin is None:
            raise errors.InvalidArgument(
                f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} ends at {until}"
                " and has no start; the two positions do not belong to the same query"
            )
        if begin < until:
            ranges.append(QueueRange(*queue, begin, until))
    return ranges


def limited(backlog: Sequence[QueueRange], rows_max: int) -> list[QueueRange]:
    """The first part of each range, `rows_max` rows in all.

    Shares are proportional to the lag. A queue with little lag still gets one row of every batch
    or, if there are more queues than rows, its turn.
    """
    waiting = [part for part in backlog if part.rows > 0]
    total = sum(part.rows for part in waiting)
    if total <= rows_max:
        return waiting
    if rows_max < len(waiting):
        # The sum of the positions grows with every batch, so the turn moves on.
        first = sum(part.start for part in waiting) % len(waiting)
        turn = {(first + step) % len(waiting) for step in range(rows_max)}
        return [
            part._replace(until=part.start + 1)
            for number, part in enumerate(waiting)
            if number in turn
        ]
    spare = rows_max - len(waiting)
    others = total - len(waiting)
    shares = [1 + spare * (part.rows - 1) // others for part in waiting]
    left = rows_max - sum(shares)
    for number, part in enumerate(waiting):
        extra = min(left, 1, part.rows - shares[number])
        shares[number] += extra
        left -= extra
    return [
        part._replace(until=part.start + share) for part, share in zip(waiting, shares, strict=True)
    ]


def plan_tasks(
    ranges: Iterable[QueueRange],
    row_sizes: Mapping[str, int],
    *,
    tasks_min: int = 1,
    rows_max: int | None = None,
) -> list[list[QueueRange]]:
    """The ranges of each task, none of them empty; at most `rows_max` rows in one."""
    line = [part for part in ranges if part.rows > 0]
    if not line:
        return []
    sizes = [part.rows * row_sizes.get(part.topic, ROW_SIZE_DEFAULT) for part in line]
    size, rows = sum(sizes), sum(part.rows for part in line)
    count = max(1, tasks_min, min(len(line), size // TASK_SIZE_MIN), -(-size // TASK_SIZE_MAX))
    if rows_max is not None:
        by_rows = -(-rows // rows_max)
        if by_rows >= count:
            return _cut(line, [1] * len(line), rows, by_rows)
        # Parts of equal size may hold unequal rows.
        tasks = _cut(line, _widths(line, sizes), size, min(count, rows))
        return [
            part
            for task in tasks
            for part in _cut(task, [1] * len(task), _rows(task), -(-_rows(task) // rows_max))
        ]
    return _cut(line, _widths(line, sizes), size, min(count, rows))


def _rows(task: Sequence[QueueRange]) -> int:
    return sum(part.rows for part in task)


def _widths(line: Sequence[QueueRange], sizes: Sequence[int]) -> list[int]:
    return [size // part.rows for part, size in zip(line, sizes, strict=True)]


def _cut(
    line: Sequence[QueueRange], widths: Sequence[int], length: int, count: int
) -> list[list[QueueRange]]:
    """Cut the line, on which a row of range i is `widths[i]` long, into `count` equal parts."""
    tasks: list[list[QueueRange]] = [[]]
    at = 0
    for part, width in zip(line, widths, strict=True):
        start = part.start
        while start < part.until:
            # Where on the line the current task ends, in rows of this range; rounded up, so that
            # every task gets at least one row.
            goal = length * len(tasks) // count if len(tasks) < count else length
            take = min(part.until - start, max(1, -(-(goal - at) // width)))
            tasks[-1].append(part._replace(start=start, until=start + take))
            start += take
            at += take * width
            if at >= goal and len(tasks) < count and at < length:
                tasks.append([])
    return [task for task in tasks if task]
