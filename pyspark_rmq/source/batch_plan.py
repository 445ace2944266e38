"""Driver side of a batch read without Spark: start and end of every queue, cut into tasks."""

from __future__ import annotations

from broker_core import ClientInstance
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offset_lookup import OffsetLookup
from pyspark_rmq.source.offset_planning import QueueRange, plan_tasks
from pyspark_rmq.source.range_reader import Task
from pyspark_rmq.source.topic_discovery import TopicDiscovery


async def plan_batch(client: ClientInstance, options: SourceOptions) -> list[Task]:
    """What to read, as of now."""
    queues = await TopicDiscovery(client, options).first_queues()
    lookup = OffsetLookup(client, options)
    assert options.starting is not None
    starts = await lookup.resolve(options.starting, queues)
    ends = await lookup.resolve(options.ending, queues)
    ranges = [QueueRange(*queue, starts[queue], ends[queue]) for queue in queues]
    ranges = [part for part in ranges if part.rows > 0]
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
    return [Task(tuple(task), stores) for task in tasks]
