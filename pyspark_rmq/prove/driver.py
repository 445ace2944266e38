"""The Spark application under test: restarts its query whenever it ends, until `finish` exists.

The harness runs it as a module, kills it and communicates through files in a directory.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_rmq.prove.killing_sink import KillingSource
from pyspark_rmq.prove.traps import DRIVER, FOLDER_VARIABLE, name_processes

_log = logging.getLogger(__name__)
_POLL_S: Final = 0.1
# A driver runs for a few batches only, so compiling code does not pay off.
_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def main(options: dict[str, str], source: str, target: str) -> int:
    """Run until `finish` exists and all rows are written."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    spark = _session()
    jvm = spark.sparkContext._gateway.proc.pid
    name_processes(folder, DRIVER, [jvm, os.getpid()])
    spark.dataSource.register(KillingSource)
    pause = threading.Event()
    while not (folder / "finish").exists():
        try:
            query = _start(spark, folder, options, source, target, {})
            while query.isActive and not (folder / "finish").exists():
                if (folder / "stop-query").exists():
                    (folder / "stop-query").unlink()
                    query.stop()
                pause.wait(_POLL_S)
            query.stop()
        except PySparkException as error:
            _log.warning("the query ended: %.2000s", error)
            pause.wait(_POLL_S)
    last = _start(spark, folder, options, source, target, {"availableNow": True})
    last.awaitTermination()
    spark.stop()
    return 0


def _session() -> SparkSession:
    session = (
        # Tasks of a killed worker are retried.
        SparkSession.builder.master("local[2,4]")
        .appName("pyspark-rmq prove")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", _JVM)
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _start(
    spark: SparkSession,
    folder: Path,
    options: dict[str, str],
    source: str,
    target: str,
    trigger: dict[str, Any],
) -> Any:
    rows = (
        spark.readStream.format("rmq")
        .options(**options)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "400")
        .load()
        .selectExpr(
            "concat('out-', cast(value as string)) as value", "cast(value as string) as key"
        )
        .repartition(2)
    )
    writer = (
        rows.writeStream.format("rmq_prove")
        .options(**options)
        .option("topic", target)
        .option("rmq.retry.timeout.ms", "20000")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    return (writer.trigger(**trigger) if trigger else writer).start()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]))
