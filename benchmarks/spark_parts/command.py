"""The command line that the Spark benchmarks share."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measuring.parts import plan, run
from benchmarks.measuring.results import info
from benchmarks.peers import kafka
from benchmarks.spark_parts import ceiling
from tests.interop.maven_artifacts import PeerUnavailable

SIZES = (100, 1024, 10 * 1024)


def main(
    document: str,
    parts: Sequence[str],
    module: str,
    more_jars: Callable[[], Sequence[Path]] = lambda: (),
) -> int:
    """Run the chosen parts: methods of `Benchmark` in `module`."""
    parser = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows, three rounds")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="these parts only")
    parser.add_argument("--directory", type=Path, help="where to put the stores (default: temp)")
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual rows")
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=SIZES, help="bytes of a value (default: all three)"
    )
    parser.add_argument(
        "--spark-conf",
        action="store_true",
        help="all with pyspark_rmq.spark_conf() instead of Spark's default transfer settings",
    )
    arguments = parser.parse_args()
    try:
        ceiling.run_on(kafka.SPARK)
        jars = [*kafka.connector_jars(), *more_jars()]
        kafka.server_class_path()
    except PeerUnavailable as missing:
        info(f"nothing to compare with: {missing}")
        return 1
    # Servers are separate processes; a signal to this one must end them as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        root = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="rmq-bench-", dir=arguments.directory)
        )
        session = ceiling.new_session(jars, is_tuned=arguments.spark_conf)
        stack.callback(session.stop)
        made: Any = importlib.import_module(module).Benchmark(session, Path(root), stack, arguments)
        chosen = [name for name in parts if name in arguments.only]
        plan(chosen)
        return run({name: getattr(made, name) for name in chosen})
