"""A driver with `spark_conf()`: rows through the sink and back, and the settings that a worker got.

Arguments: name server, checkpoint directory. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark_rmq import spark_conf
from tests.spark.spark_session import new_session

ROWS = 3_000
NAMES = ("SPARK_BUFFER_SIZE", "PYTHON_UNIX_DOMAIN_ENABLED")


def worker_environment(_: int) -> dict[str, str]:
    return {name: os.environ.get(name, "").lower() for name in NAMES}


def main(name_server: str, checkpoint: str) -> None:
    spark = new_session(spark_conf())
    given = {"rmq.namesrv.addr": name_server}
    # Values that do not fit into one buffer.
    rows = spark.range(ROWS).selectExpr("repeat(cast(id as string), 300) as value")
    rows.write.format("rmq").options(**given).option("topic", "first").mode("append").save()
    source: Any = spark.readStream.format("rmq").options(**given, startingOffsets="earliest")
    query = (
        source.load("first")
        .select("value")
        .writeStream.format("rmq")
        .options(**given, topic="second", checkpointLocation=checkpoint)
        .start()
    )
    query.processAllAvailable()
    query.stop()
    read = spark.read.format("rmq").options(**given).load("second")
    found = sorted(int(bytes(row.value[: len(row.value) // 300])) for row in read.collect())
    [environment] = spark.sparkContext.parallelize([0], 1).map(worker_environment).collect()
    sys.stdout.write(json.dumps({"all": found == list(range(ROWS)), **environment}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
