"""At-least-once writes to Apache RocketMQ's own brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import SyncPullConsumer, errors
from pyspark_rmq.sink.guarantee import decide_guarantee
from pyspark_rmq.sink.publication import publish_batch
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.outgoing_columns import ROW_PROPERTY
from pyspark_rmq.sink.task.result import TaskIdentity
from pyspark_rmq.sink.task.sink_columns import find_columns
from pyspark_rmq.sink.task.writer import write_task
from tests.interop.clusters import APACHE_KINDS, cluster, run_or_skip

pytestmark = pytest.mark.interop
COUNT = 5_000


@pytest.mark.parametrize("kind", APACHE_KINDS)
def test_writes(run_async: Callable[..., Any], kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(kind, tmp_path) as found:
            await asyncio.to_thread(_write_all, found.name_server)

    run_or_skip(run_async, scenario())


def _write_all(name_server: str) -> None:
    given = {"rmq.namesrv.addr": name_server, "topic": "orders", "createTopic": "ifMissing"}
    options = SinkOptions.parse({**given, "topic.queues": "4"})
    fields = [("value", "binary"), ("key", "string"), ("shardingKey", "string")]
    columns = find_columns(fields, options)
    assert decide_guarantee(options, columns) == "at_least_once"
    strict = SinkOptions.parse({**given, "deliveryGuarantee": "exactly_once"})
    with pytest.raises(errors.RequestNotSupported, match="deliveryGuarantee=at_least_once"):
        decide_guarantee(strict, columns)
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "value": pa.array([b"%d" % n for n in numbers], pa.binary()),
                "key": pa.array([f"k{n}" for n in numbers]),
                "shardingKey": pa.array([f"s{n % 5}" if n % 2 else None for n in numbers]),
            }
        )
        for numbers in (range(3_000), range(3_000, COUNT))
    ]
    identity = TaskIdentity("query", 0, "run", 1, 0, 0)
    result = write_task(batches, options, columns, "at_least_once", identity)
    publish_batch(options, [result])
    assert (result.row_count, sum(r[2] for r in result.ranges.values())) == (COUNT, COUNT)
    seen: Counter[int] = Counter()
    queues: dict[str, set[int]] = {}
    with SyncPullConsumer(name_server) as consumer:
        for queue in consumer.queues("orders"):
            # 5.5 acknowledges before readers can see it: wait at the broker.
            offset, end = 0, result.ranges[queue][1]
            while offset < end:
                pulled = consumer.pull(queue, offset, suspend_ms=5_000)
                for message in pulled.messages:
                    number = int(message.body)
                    seen[number] += 1
                    assert message.keys == f"k{number}"
                    assert message.properties[ROW_PROPERTY] == f"query:0:1:{number}"
                    shard = message.properties.get("__SHARDINGKEY", "")
                    assert shard == (f"s{number % 5}" if number % 2 else "")
                    queues.setdefault(shard, set()).add(queue.queue_id)
                offset = pulled.next_offset
    assert seen == Counter(range(COUNT))
    assert all(len(found) == 1 for shard, found in queues.items() if shard)
    assert queues[""] == {0, 1, 2, 3}
