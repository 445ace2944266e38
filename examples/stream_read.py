"""Read a topic with Spark: the messages in it, and those that arrive while a query runs.

Starts a broker of its own, so nothing has to be installed but `pyspark-rmq[spark]` and Java 17.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

from pyspark_rmq import EmbeddedBroker, spark_conf

ORDERS = [f"order {number}" for number in range(1000)]


def main() -> None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        print("PySpark is not installed: pip install pyspark-rmq[spark]")
        return
    # Spark's workers must run the Python that has this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config(map=spark_conf())
        .getOrCreate()
    )
    checkpoint = tempfile.mkdtemp(prefix="rmq-example-")
    try:
        with EmbeddedBroker(topics={"orders": 4}) as broker:
            broker.produce("orders", ORDERS[:600], tags="new")
            batch = spark.read.format("rmq").options(**broker.options).load("orders")
            print(f"batch read: {batch.count()} rows, columns {', '.join(batch.columns)}")

            seen: list[str] = []
            query = (
                spark.readStream.format("rmq")
                .options(**broker.options)
                .option("subscribe", "orders")
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", "500")
                .schema("value BINARY")
                .load()
                .writeStream.foreachBatch(
                    lambda frame, _: seen.extend(
                        bytes(row.value).decode() for row in frame.collect()
                    )
                )
                .option("checkpointLocation", checkpoint)
                .start()
            )
            query.processAllAvailable()
            print(f"stream, messages in the topic: {len(seen)} rows")
            broker.produce("orders", ORDERS[600:], tags="new")
            query.processAllAvailable()
            query.stop()
            print(f"stream, with later messages: {len(seen)} rows")
            assert sorted(seen) == sorted(ORDERS)
            print("every order was read exactly once")
    finally:
        spark.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


if __name__ == "__main__":
    main()
