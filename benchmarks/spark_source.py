"""How fast the Spark source is, as ratios taken in one run on one machine.

    python benchmarks/spark_source.py [--quick] [--only NAME ...] [--sizes N ...] [--spark-conf]

Beside each other: our source on our broker (reading its files, and over the network as from
another host), our source on Apache's broker, Spark's Kafka source on a local Kafka (with default
settings, and with large polls and fetches), and the null Arrow source, whose rows are made
beforehand and which no Python source can beat. `local[2]`, 4 queues or partitions. Every row names
its settings and shows median and range; ratios are against the better of Kafka's two. The order of
the competitors changes from round to round, and the first round only warms up. Runs on Spark 4.2.1,
the newest with a Kafka connector, in a virtualenv that is made when it is missing; the first run
fetches that and the servers and takes longer. Nothing here passes or fails.

    stream     a backlog by availableNow: value, the seven columns of Kafka's source, our default
    batch      the same by spark.read
    partitions values of 100 B from 1 to 64 queues or partitions, and so as many tasks
    apache     from Apache's broker, beside one pull at a time of ours and of Apache's Java client
    trickle    fixed cost of a micro-batch, one partition for all
    latency    from the send to foreachBatch, at least 1,000 samples each
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.spark_parts import command

PARTS = ("stream", "batch", "partitions", "apache", "trickle", "latency")

if __name__ == "__main__":
    sys.exit(command.main(__doc__, PARTS, "benchmarks.spark_parts.source"))
