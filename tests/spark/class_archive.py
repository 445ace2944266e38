"""`python -m tests.spark.class_archive`: makes the class archive of Spark's JVM, once.

The JVM runs what most tests run: a batch read, a stream from source to sink, and an aggregation.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.class_archives import archive_flags, archive_path, java_version, recorded_archive

_PROGRAM = "spark"
# Read by Spark's launcher for every driver, also for those of examples and of commands.
_VARIABLE = "SPARK_SUBMIT_OPTS"


def _jars() -> str:
    """Spark's jars of this virtualenv, as an archive knows them; empty without Spark."""
    spec = find_spec("pyspark")
    jars = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    return f"{jars} {jars.stat().st_mtime_ns}" if jars is not None and jars.is_dir() else ""


def use_archive() -> None:
    """Drivers that this process starts use the archive, if there is one."""
    flags = " ".join(archive_flags(_PROGRAM, _jars()))
    if flags and flags not in os.environ.get(_VARIABLE, ""):
        os.environ[_VARIABLE] = f"{os.environ.get(_VARIABLE, '')} {flags}".strip()


def _record() -> None:
    from pyspark_rmq import EmbeddedBroker
    from tests.spark.spark_session import new_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with (
        recorded_archive(_PROGRAM, _jars()) as flags,
        tempfile.TemporaryDirectory() as work,
        EmbeddedBroker(store=f"{work}/store") as broker,
    ):
        os.environ[_VARIABLE] = " ".join(flags)
        spark = new_session()
        jvm = spark.sparkContext._gateway.proc
        broker.create_topic("in", 2)
        broker.create_topic("out", 2)
        broker.produce("in", [b"a", b"b"])
        rows = spark.read.format("rmq").options(**broker.options).option("subscribe", "in").load()
        rows.groupBy("key").count().collect()
        stream = spark.readStream.format("rmq").options(**broker.options)
        stream = stream.option("subscribe", "in").option("startingOffsets", "earliest").load()
        sink = stream.select("value").writeStream.format("rmq").options(**broker.options)
        sink = sink.option("topic", "out").option("checkpointLocation", f"{work}/checkpoint")
        sink.trigger(availableNow=True).start().awaitTermination()
        spark.stop()
        # The JVM writes the archive when it ends, which it does when its input is closed.
        jvm.stdin.close()
        jvm.wait()


def main() -> int:
    path = archive_path(_PROGRAM, _jars())
    if not java_version() or not _jars() or path.is_file():
        return 0
    sys.stdout.write("making the class archive of Spark's JVM, which saves half of its CPU\n")
    sys.stdout.flush()
    _record()
    size = path.stat().st_size >> 20 if path.is_file() else 0
    sys.stdout.write(f"class archive of {size} MB\n" if size else "no class archive was written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
