"""How fast the Spark source is, as ratios taken in one run on one machine.

    python benchmarks/spark_source.py [--quick] [--only NAME ...] [--directory DIR]

Beside each other: our source on our broker (reading its files, and over the network as from
another host), our source on Apache's broker, Spark's Kafka source on a local Kafka, and the null
Arrow source, a plain one whose rows are made beforehand. `local[2]`, 4 queues. One line per goal:
`ratio NAME VALUE goal >=X`. Medians of alternating rounds after an equal warm-up. Runs on Spark
4.2.1, the newest with a Kafka connector, in a virtualenv that is made when it is missing; the first
run fetches that and the servers and takes longer. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import kafka_peer, spark_ceiling
from benchmarks.measure import info
from tests.interop.maven_artifacts import PeerUnavailable

PARTS = ("stream", "batch", "apache", "trickle", "latency")


def main() -> int:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__)
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
    from benchmarks.spark_source_parts import Benchmark

    # Servers are separate processes; a signal to this one must end them as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
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
