"""How fast the Spark sink is, as ratios taken in one run on one machine.

    python benchmarks/spark_sink.py [--quick] [--only NAME ...] [--sizes N ...] [--spark-conf]

Beside each other: Spark's Kafka sink to a local Kafka, at least once (default settings, larger
batches, and both with logs that are synced), our sink at least once and exactly once (into the
staging files, and over the network as from another host), and the null Arrow writer, which no sink
in Python can beat. `local[2]`, 4 queues or partitions, rows of `spark.range`. Every row names flush
mode, `sinkWaitForDisk` or acks, and shows median and range; ratios are against the better of
Kafka's two. The order of the competitors changes from round to round, the first round only warms
up, and each run finds as much memory for its files as it needs (`touch_memory`); one run of each
without that is shown. Runs on Spark 4.2.1, the newest with a Kafka connector, in a virtualenv that
is made when it is missing. Nothing here passes or fails.

    write      rows per second: default against default, unsynced against unsynced, synced against
               Kafka with flush.messages=1
    disk       exactly once with SYNC_FLUSH, against the disk's own write + sync
    publish    100 MB in one batch: time, and how long another producer waits meanwhile
    apache     at least once into Apache's broker, against Apache's own producer with equal batches
    trickle    fixed cost of a micro-batch, source and sink, one partition for all
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.spark_parts import command

PARTS = ("write", "disk", "publish", "apache", "trickle")

if __name__ == "__main__":
    sys.exit(command.main(__doc__, PARTS, "benchmarks.spark_parts.sink"))
