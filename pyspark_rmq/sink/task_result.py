"""Who writes a batch, and what one task of it did. Plain values that travel through Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker_core import BatchIdentity, MessageQueue, StagedAt

# Queue -> (first offset, offset after the last, messages)
Ranges = dict[MessageQueue, tuple[int, int, int]]


class TaskIdentity(NamedTuple):
    """One attempt at one partition of a batch."""

    sink: str
    batch: int
    run: str
    partition: int
    attempt: int
    task_attempt: int
    lineage: str = ""
    once: bool = False
    """A batch job, which is the sink's only batch."""
    is_inner: bool = False
    """A write inside `foreachBatch`."""
    writer: str = ""
    """Whose batches are counted by `batch`, if that is not the sink: another checkpoint counts from
    0 again under the same name of the sink."""
    query: str = ""
    """The id of the query whose batches these are; for jobs that number their batches themselves,
    a word that no query has for an id."""

    @property
    def of_batch(self) -> BatchIdentity:
        """What brokers know of it."""
        who = BatchIdentity(self.sink, self.batch, self.run, self.lineage, once=self.once)
        return who._replace(query=self.query)

    @property
    def row_name(self) -> str:
        """The same for every attempt, and for no other rows: what their names begin with."""
        return f"{self.writer or self.sink}:{self.batch}:{self.partition}"


class TaskResult(NamedTuple):
    """What a task wrote."""

    identity: TaskIdentity
    guarantee: str
    row_count: int = 0
    size: int = 0
    """Bytes of all bodies."""
    oversize_count: int = 0
    """Rows that were dropped, or of which only the beginning was written elsewhere."""
    staged: tuple[StagedAt, ...] = ()
    """exactly_once: waiting to be published."""
    ranges: Ranges = {}  # noqa: RUF012  # read only
    """at_least_once: where the messages are."""
    retry_count: int = 0
    """Requests that had to be sent again."""
    digest: int = 0
    """exactly_once: of all rows, see `digest_rows`."""


def joined_ranges(results: Iterable[Ranges]) -> Ranges:
    """The ranges of several tasks; between first and last others may have written too."""
    joined: Ranges = {}
    for ranges in results:
        for queue, (first, after, count) in ranges.items():
            old = joined.get(queue, (first, after, 0))
            joined[queue] = min(first, old[0]), max(after, old[1]), count + old[2]
    return joined
