"""The Spark session of the tests: two cores, no UI, little waiting. Also for driver processes.

A test run has few seconds of work for each start of a JVM, so the JVM compiles little, collects
simply, and Spark interprets its plans. Checkpoints are written without a process for each file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_STREAMING = "org.apache.spark.sql.execution.streaming"


def new_session(settings: Mapping[str, str] | None = None) -> Any:
    """A new session in this process, with other `settings` than usual."""
    import pyspark
    from pyspark.sql import SparkSession

    package = _STREAMING if pyspark.__version__ < "4.1" else f"{_STREAMING}.checkpointing"
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pyspark-rmq tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", _JVM)
        .config(
            "spark.sql.streaming.checkpointFileManagerClass",
            f"{package}.FileSystemBasedCheckpointFileManager",
        )
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
