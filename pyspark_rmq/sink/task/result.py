"""Identity and result of one task of a batch. Plain values that Spark pickles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker_core import BatchIdentity, MessageQueue, StagedPart

# Owner of the sinks of jobs with a batchId; it is not the id of any query.
JOBS: Final = "jobs that give a batchId"

# Queue -> (first offset, offset after the last, messages)
Ranges = dict[MessageQueue, tuple[int, int, int]]


class TaskIdentity(NamedTuple):
    """One attempt of Spark at one partition of a batch."""

    sink: str
    batch: int
    run: str
    partition: int
    attempt_number: int
    task_attempt_id: int
    lineage: str = ""
    once: bool = False
    """A batch job: the sink has no other batch."""
    is_inner: bool = False
    """A write inside `foreachBatch`."""
    writer: str = ""
    """The counter of the batches, if it is not the sink: another checkpoint starts at 0 again under
    the same sinkId."""
    query: str = ""
    """Id of the query; for jobs with a `batchId`, a constant that is no query's id."""
    start: str = ""
    """Which start of the query a write inside `foreachBatch` belongs to; empty if not known."""

    @property
    def batch_identity(self) -> BatchIdentity:
        """The part of the identity that is sent to brokers."""
        who = BatchIdentity(self.sink, self.batch, self.run, self.lineage, once=self.once)
        return who._replace(query=self.query)

    @property
    def row_name(self) -> str:
        """Prefix of row names: the same for every attempt at these rows, and for no other rows."""
        return f"{self.writer or self.sink}:{self.batch}:{self.partition}"


class TaskResult(NamedTuple):
    """What a task wrote; sent to the driver in its commit message."""

    identity: TaskIdentity
    guarantee: str
    row_count: int = 0
    size: int = 0
    """Bytes of all bodies."""
    oversize_count: int = 0
    """Rows above `maxMessageSize`: dropped, or cut and written to `oversizeTopic`."""
    parts: tuple[StagedPart, ...] = ()
    """exactly_once: one sealed part per broker."""
    ranges: Ranges = {}  # noqa: RUF012  # read only
    """at_least_once: where the messages are."""
    retry_count: int = 0
    """Requests that were sent again."""
    digest: int = 0
    """exactly_once: digest of all rows, see `digest_rows`."""
    topic_rows: tuple[tuple[str, int], ...] = ()
    """Rows of each topic."""


def joined_ranges(results: Iterable[Ranges]) -> Ranges:
    """The ranges of several tasks; other producers may have written in between."""
    joined: Ranges = {}
    for ranges in results:
        for queue, (first, after, count) in ranges.items():
            old = joined.get(queue, (first, after, 0))
            joined[queue] = min(first, old[0]), max(after, old[1]), count + old[2]
    return joined
