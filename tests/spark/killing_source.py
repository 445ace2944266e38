"""The source with a trap: at a point of a batch it kills the process that it is in, or the driver.

    killWork   directory with the checkpoint
    killAt     point:batch, for example read:3; the first time that this point is passed with at
               least that batch in the checkpoint
    killWhom   self: Spark's Python process that passes the point; the query fails and its session
               lives on. driver: the JVM and the driver

Run as a module this is the driver; its arguments are the work directory and options as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_rmq.data_source import RmqDataSource, _chosen
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.stream_reader import RmqStreamReader
from tests.spark.spark_session import new_session

POINTS = ("partitions", "read", "sink_after", "source_commit", "latestOffset")


class Trap(NamedTuple):
    """Point and victim of a kill."""

    work: str
    at: str
    whom: str

    def passed(self, point: str) -> bool:
        """Whether this is the point."""
        wanted, _, batch = self.at.partition(":")
        return point == wanted and last_batch(Path(self.work)) >= int(batch)

    def spring(self, point: str) -> None:
        """Kill, if this is the point."""
        if not self.passed(point):
            return
        (Path(self.work) / f"killed-{point}").touch()
        if self.whom == "driver":
            jvm, driver = json.loads((Path(self.work) / "processes.json").read_text())
            os.kill(jvm, signal.SIGKILL)
            os.kill(driver, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def last_batch(work: Path) -> int:
    """The newest batch whose end is in the checkpoint; -1 without any."""
    offsets = work / "checkpoint" / "offsets"
    found = [int(path.name) for path in offsets.glob("[0-9]*")] if offsets.exists() else []
    return max(found, default=-1)


class KillingReader(RmqStreamReader):
    """Passes the points of the driver and of tasks."""

    trap = Trap("", ":0", "self")

    def latestOffset(self, start: Any = None, limit: Any = None) -> Any:
        self.trap.spring("latestOffset")
        return super().latestOffset(start, limit)

    def partitions(self, start: Any, end: Any) -> Any:
        self.trap.spring("partitions")
        return super().partitions(start, end)

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            self.trap.spring("read")

    def commit(self, end: Any) -> None:
        self.trap.spring("source_commit")
        super().commit(end)


class KillingSource(RmqDataSource):
    """`rmq_killing`."""

    @classmethod
    def name(cls) -> str:
        return "rmq_killing"

    def schema(self) -> str:
        return RmqDataSource(self._parted()[0]).schema()

    def streamReader(self, schema: Any) -> KillingReader:
        given, trap = self._parted()
        options = SourceOptions.parse(given).for_stream()
        reader = KillingReader(options, _chosen(schema, options))
        reader.trap = trap
        return reader

    def _parted(self) -> tuple[dict[str, str], Trap]:
        """The options without those of the trap, which the source itself would refuse."""
        options = dict(self.options)
        return options, Trap(*(options.pop(n, "") for n in ("killwork", "killat", "killwhom")))


def take_batch(work: Path, frame: Any, batch_id: int) -> None:
    """Every attempt at a batch becomes a file."""
    rows = [
        [row["partition"], row["offset"], bytes(row["value"]).decode()] for row in frame.collect()
    ]
    attempt = len(list(work.glob(f"batch-{batch_id}-*.json")))
    target = work / f"batch-{batch_id}-{attempt}.json"
    target.with_suffix(".tmp").write_text(json.dumps(rows))
    target.with_suffix(".tmp").rename(target)


def run_query(spark: Any, work: Path, options: dict[str, str], trap: Trap) -> Any:
    """Run to the end of the input; returns the ended query, also if it failed."""

    def take(frame: Any, batch_id: int) -> None:
        take_batch(work, frame, batch_id)
        if trap.whom == "driver":
            trap.spring("sink_after")
        elif trap.passed("sink_after"):
            (work / "killed-sink_after").touch()
            raise RuntimeError("the sink has its rows, and the batch is not recorded")

    given = {**options, "killWork": trap.work, "killAt": trap.at, "killWhom": trap.whom}
    frame = spark.readStream.format("rmq_killing").options(**given).load()
    return (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def main(work: Path, options: dict[str, str], kill_at: str) -> None:
    """A driver to be killed."""
    spark = new_session()
    jvm = spark.sparkContext._gateway.proc.pid
    (work / "processes.json").write_text(json.dumps([jvm, os.getpid()]))
    spark.dataSource.register(KillingSource)
    run_query(spark, work, options, Trap(str(work), kill_at, "driver")).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
