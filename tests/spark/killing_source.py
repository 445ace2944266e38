"""The source with a trap: it kills its driver at a point, and a driver to be killed.

    KILL_AT   point:batch, for example read:3; the first time that this point is passed with at
              least that batch in the checkpoint, the JVM and the driver are killed

Run as a module this is the driver; its arguments are the work directory and options as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark_rmq.data_source import RmqDataSource, _chosen
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.stream_reader import RmqStreamReader
from tests.spark.spark_session import new_session

POINTS = ("partitions", "read", "sink_after", "source_commit", "latestOffset")


def last_batch(work: Path) -> int:
    """The newest batch whose end is in the checkpoint; -1 without any."""
    offsets = work / "checkpoint" / "offsets"
    found = [int(path.name) for path in offsets.glob("[0-9]*")] if offsets.exists() else []
    return max(found, default=-1)


def trap(point: str) -> None:
    """Kill, if this is the point."""
    wanted, _, batch = os.environ.get("KILL_AT", ":0").partition(":")
    work = Path(os.environ["KILL_WORK"])
    if point == wanted and last_batch(work) >= int(batch):
        jvm, driver = json.loads((work / "processes.json").read_text())
        os.kill(jvm, signal.SIGKILL)
        os.kill(driver, signal.SIGKILL)


class KillingReader(RmqStreamReader):
    """Passes the points of the driver and of tasks."""

    def latestOffset(self, start: Any = None, limit: Any = None) -> Any:
        trap("latestOffset")
        return super().latestOffset(start, limit)

    def partitions(self, start: Any, end: Any) -> Any:
        trap("partitions")
        return super().partitions(start, end)

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            trap("read")

    def commit(self, end: Any) -> None:
        trap("source_commit")
        super().commit(end)


class KillingSource(RmqDataSource):
    """`rmq_killing`."""

    @classmethod
    def name(cls) -> str:
        return "rmq_killing"

    def streamReader(self, schema: Any) -> KillingReader:
        options = SourceOptions.parse(self.options).for_stream()
        return KillingReader(options, _chosen(schema, options))


def main(work: Path, options: dict[str, str], trigger: dict[str, Any]) -> None:
    """Run the query; every attempt at a batch becomes a file."""
    spark = new_session()
    jvm = spark.sparkContext._gateway.proc.pid
    (work / "processes.json").write_text(json.dumps([jvm, os.getpid()]))
    spark.dataSource.register(KillingSource)

    def take(frame: Any, batch_id: int) -> None:
        rows = [
            [row["partition"], row["offset"], bytes(row["value"]).decode()]
            for row in frame.collect()
        ]
        target = work / f"batch-{batch_id}-{os.getpid()}.json"
        target.with_suffix(".tmp").write_text(json.dumps(rows))
        target.with_suffix(".tmp").rename(target)
        trap("sink_after")

    frame = spark.readStream.format("rmq_killing").options(**options).load()
    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(**trigger)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]))
