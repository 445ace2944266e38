"""Driver side of a batch read: range of every queue, split into tasks. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from broker_core import ClientInstance
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.filter_check import FilterCheck
from pyspark_rmq.source.offsets.offset_lookup import OffsetLookup
from pyspark_rmq.source.offsets.offset_planning import QueueRange, plan_tasks
from pyspark_rmq.source.offsets.start_position import Anchor, Position, Positions
from pyspark_rmq.source.offsets.stream_position import Repeats
from pyspark_rmq.source.offsets.topic_discovery import TopicDiscovery
from pyspark_rmq.source.rows.key_index import by_index
from pyspark_rmq.source.rows.predicates import NO_LIMIT, Predicate, allows_queue, reach_of
from pyspark_rmq.source.rows.range_reader import Task


async def plan_batch(
    client: ClientInstance, options: SourceOptions, pushed: Sequence[Predicate] = ()
) -> list[Task]:
    """The tasks of a read as of now; `pushed` are conditions that Spark applies again."""
    ranges = await batch_ranges(client, options)
    return await batch_tasks(client, options, ranges, pushed)


async def batch_ranges(client: ClientInstance, options: SourceOptions) -> list[QueueRange]:
    """The range of every queue, without regard to conditions."""
    queues = await TopicDiscovery(client, options).first_queues()
    await FilterCheck(client, options).check(queues)
    lookup = OffsetLookup(client, options)
    assert options.starting is not None
    starts = await lookup.resolve(options.starting, queues)
    ends = await lookup.resolve(options.ending, queues)
    ranges = [QueueRange(*queue, starts[queue], ends[queue]) for queue in queues]
    return [part for part in ranges if part.rows > 0]


async def batch_tasks(
    client: ClientInstance,
    options: SourceOptions,
    ranges: Sequence[QueueRange],
    pushed: Sequence[Predicate] = (),
    repeats: Repeats = MappingProxyType({}),
) -> list[Task]:
    """Tasks for the parts of the ranges that meet the conditions, without repeats."""
    lookup = OffsetLookup(client, options)
    predicates = (*options.where, *pushed)
    ranges = [part for part in ranges if allows_queue(predicates, part.queue)]
    if predicates:
        ranges = await _reached(ranges, predicates, lookup)
        ranges = await by_index(client, options, ranges, predicates)
    row_sizes: dict[str, int] = {}
    for part in sorted(ranges, key=lambda part: -part.rows):
        if part.topic not in row_sizes:
            size = await lookup.row_size(part.queue, part.until)
            if size is not None:
                row_sizes[part.topic] = size
    stores = await lookup.stores({part.broker_name for part in ranges})
    tasks = plan_tasks(
        ranges,
        row_sizes,
        tasks_min=options.partitions_min,
        rows_max=options.rows_per_partition_max,
    )
    return [Task.of(task, stores, repeats) for task in tasks]


async def _reached(
    ranges: list[QueueRange], predicates: Sequence[Predicate], lookup: OffsetLookup
) -> list[QueueRange]:
    """The parts of the ranges whose offsets and store times the conditions allow."""
    reach = reach_of(predicates)
    queues = [part.queue for part in ranges]
    starts = dict.fromkeys(queues, reach.offset_from)
    ends = dict.fromkeys(queues, reach.offset_until)
    if reach.time_from_ms > 0:
        found = await lookup.resolve(_at(reach.time_from_ms), queues)
        starts = {queue: max(starts[queue], found[queue]) for queue in queues}
    if reach.time_until_ms < NO_LIMIT:
        found = await lookup.resolve(_at(max(0, reach.time_until_ms)), queues)
        ends = {queue: min(ends[queue], found[queue]) for queue in queues}
    cut = (
        part._replace(
            start=max(part.start, starts[part.queue]), until=min(part.until, ends[part.queue])
        )
        for part in ranges
    )
    return [part for part in cut if part.rows > 0]


def _at(time_ms: int) -> Positions:
    return Positions(Position(Anchor.TIME, time_ms), option="where", strict_times=False)
