"""How fast the Spark sink is, as ratios taken in one run on one machine.

    python benchmarks/spark_sink.py [--quick] [--only NAME ...] [--directory DIR]

Beside each other: Spark's Kafka sink to a local Kafka (at least once, nothing synced), our sink at
least once and exactly once, and the null Arrow writer, which no sink in Python can beat.
`local[2]`, 4 queues, rows of `spark.range`. One line per goal: `ratio NAME VALUE goal >=X`. Medians
of alternating rounds after an equal warm-up, each of which finds as much memory for its files as
it needs (`touch_memory`). Runs on Spark 4.2.1, the newest with a Kafka
connector, in a virtualenv that is made when it is missing. Nothing here passes or fails.

    write      rows per second, our broker with ASYNC_FLUSH and sinkWaitForDisk=false, as Kafka's
    sync       the same with SYNC_FLUSH, against the disk's own write + sync
    publish    100 MB in one batch: time, and how long another producer waits meanwhile
    apache     at least once into Apache's broker, against Apache's own way to send batches
    trickle    fixed cost of a micro-batch, source and sink
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import kafka_peer, spark_ceiling
from benchmarks.measure import info
from tests.interop.maven_artifacts import PeerUnavailable

PARTS = ("write", "sync", "publish", "apache", "trickle")


def main() -> int:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, ends within 5 minutes")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts only")
    parser.add_argument("--directory", type=Path, help="where to put the stores (default: temp)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, for trials")
    arguments = parser.parse_args()
    try:
        spark_ceiling.run_on(kafka_peer.SPARK)
        jars = kafka_peer.connector_jars()
        kafka_peer.server_class_path()
    except PeerUnavailable as missing:
        print(f"info nothing to compare with: {missing}")
        return 1
    from benchmarks.spark_sink_parts import Benchmark

    with ExitStack() as stack:
        root = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="rmq-bench-", dir=arguments.directory)
        )
        session = spark_ceiling.new_session(jars)
        stack.callback(session.stop)
        bench = Benchmark(session, Path(root), stack, arguments.quick, arguments.scale)
        for name in PARTS:
            if name in arguments.only:
                started = time.perf_counter()
                getattr(bench, name)()
                info(f"{name} took {time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
