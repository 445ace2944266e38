"""A driver that reads a large backlog and keeps sums of every attempt at a batch, to be killed.

Arguments: work directory, options as JSON, where to be killed (`killing_source.py`).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.spark.killing_source import KillingSource, Trap
from tests.spark.spark_session import new_session

# Offsets and values of a queue, so that a row lost, repeated or changed shows.
SUMS = (
    "partition", "count(*)", "min(offset)", "max(offset)", "sum(offset)", "sum(crc32(value))",
)  # fmt: skip


def main(work: Path, options: dict[str, str], kill_at: str) -> None:
    spark = new_session()
    jvm = spark.sparkContext._gateway.proc.pid
    (work / "processes.json").write_text(json.dumps([jvm, os.getpid()]))
    spark.dataSource.register(KillingSource)
    trap = Trap(str(work), kill_at, "driver")

    def take(frame: Any, batch_id: int) -> None:
        sums = frame.groupBy("partition").agg(*_columns()).orderBy("partition").collect()
        attempt = len(list(work.glob(f"sums-{batch_id}-*.json")))
        target = work / f"sums-{batch_id}-{attempt}.json"
        target.with_suffix(".tmp").write_text(json.dumps([list(row) for row in sums]))
        target.with_suffix(".tmp").rename(target)
        trap.spring("sink_after")

    given = {**options, "killWork": trap.work, "killAt": trap.at, "killWhom": trap.whom}
    frame = spark.readStream.format("rmq_killing").options(**given)
    query = (
        frame.schema("partition INT, offset LONG, value BINARY")
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def _columns() -> list[Any]:
    from pyspark.sql import functions

    return [functions.expr(text) for text in SUMS[1:]]


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
